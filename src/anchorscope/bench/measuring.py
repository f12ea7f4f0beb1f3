"""What every implementation is given: token sequences with a common beginning, the keys to cut, and where to read.

Two kinds. Real items are questions with answers in the two-shot template, their exact tokens found as in a run; half of
the answers are another question's, so that probes have two labels. Synthetic items are random tokens: `shared` ones
that all begin with and `own` ones that follow, of which 4 … 9 are cut; the last is one of 16 tokens, every other of
which stands for "true". Both are read at the last token, and every cut is from all later queries, in every layer.

How a benchmark measures: seconds and peak memory of a piece of work, the rows they fill, and the model and items.

Peak memory of the host is sampled while the work runs (the peak that the system keeps for a process never falls again,
so later work would inherit it); that of a GPU comes from torch.
"""

import ctypes
import gc
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from types import TracebackType
from typing import Any

import numpy as np
import torch

from anchorscope.bench.options import Options
from anchorscope.engine.batching import block_parameters
from anchorscope.engine.sequences import Cut, TokenSequence, shared_prefix_length
from anchorscope.errors import UserError
from anchorscope.models import sources
from anchorscope.models.embedded import installed_path
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import BALANCED, DTYPES, checked_device, choose_device, choose_dtype, load
from anchorscope.models.wrapping import wrap

CUT_FIRST, CUT_LAST = 4, 9
"""Which of a synthetic item's own tokens are cut."""
LEAST_OWN = CUT_LAST + 3
"""Own tokens that a synthetic item needs: tokens follow the last one that is cut."""
FOLDS = 5
"""Training sets of the probes, per layer."""
_LAST_TOKENS = 16  # few, so that the label can be learned from the states


@dataclass(frozen=True)
class Item:
    """One sequence and its cut."""

    ids: tuple[int, ...]
    keys: tuple[int, ...]
    """Positions that later ones may not attend to, in every layer or in one."""
    label: bool
    """What a probe is to tell."""

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)


@dataclass(frozen=True)
class Workload:
    """The items of one measurement."""

    items: tuple[Item, ...]
    about: str
    """What the items are, in words."""
    prompts: tuple[tuple[int, ...], ...] = ()
    """What `generation` continues, whole prompts."""
    end_tokens: tuple[int, ...] = ()
    """Tokens that end an answer; empty where every answer has the same length."""
    new_tokens: int = 16
    """The longest answer."""

    def first(self, n: int) -> "Workload":
        """The same work on fewer items."""
        return replace(self, items=self.items[:n], prompts=self.prompts[:n])

    @property
    def tokens(self) -> int:
        """Tokens of all items, without padding."""
        return sum(item.length for item in self.items)

    @cached_property
    def shared(self) -> int:
        """Leading tokens that all items have in common, none of which is cut."""
        limits = [min(item.keys) for item in self.items]
        return shared_prefix_length([item.ids for item in self.items], limits)

    @cached_property
    def shared_by_prompts(self) -> int:
        """Leading tokens that all prompts have in common."""
        return shared_prefix_length(self.prompts, [len(ids) - 1 for ids in self.prompts])

    @property
    def sequences(self) -> list[TokenSequence]:
        """As the engine takes them."""
        return [TokenSequence(item.ids, item.length - 1, (item.length - 1,)) for item in self.items]

    @property
    def cuts(self) -> list[Cut]:
        """As the engine takes them."""
        return [Cut(item.keys, "all") for item in self.items]


def synthetic(n: int, shared: int, own: int, vocabulary: int, seed: int, new_tokens: int = 16) -> Workload:
    """Random tokens of one length."""
    if own < LEAST_OWN:
        raise UserError(
            f"--own {own} is too short: own tokens {CUT_FIRST} to {CUT_LAST} are cut and others must follow; "
            f"allowed: {LEAST_OWN} or more."
        )
    rng = np.random.default_rng(seed)
    head = tuple(rng.integers(0, vocabulary, shared).tolist())
    ending = rng.choice(vocabulary, size=_LAST_TOKENS, replace=False)
    items = []
    for _ in range(n):
        last = int(rng.integers(len(ending)))
        ids = (*head, *rng.integers(0, vocabulary, own - 1).tolist(), int(ending[last]))
        items.append(Item(ids, tuple(range(shared + CUT_FIRST, shared + CUT_LAST + 1)), last % 2 == 0))
    about = f"{n} items of {shared} shared and {own} own random tokens"
    return Workload(tuple(items), about, tuple(item.ids for item in items), (), new_tokens)


def real(n: int, dataset: str, tokenizer: Any, needs_bos: int | None, seed: int, new_tokens: int = 16) -> Workload:
    """Questions of a dataset with true answers and with answers of other questions."""
    # Only here: on a machine with nothing but torch and transformers, synthetic items are all that is needed.
    from anchorscope.answers.choose import choose_questions
    from anchorscope.answers.generate import given_answers
    from anchorscope.answers.template import build_prompts, make_template
    from anchorscope.datasets.catalog import open_dataset, parse_spec
    from anchorscope.spans.locate import locate_all
    from anchorscope.spans.question_spans import locate_question_words

    questions = choose_questions(open_dataset(parse_spec(dataset)), n, seed).questions
    order = np.random.default_rng(seed).permutation(len(questions)).tolist()  # any first items are then a fair sample
    questions = [questions[index] for index in order]
    template = make_template("few-shot", tokenizer, needs_bos)
    prompts = build_prompts(tokenizer, questions, template)
    labels = [index % 2 == 0 for index in range(len(questions))]
    true = [question.answers[0] for question in questions]
    texts = _answer_texts(true, [question.relation for question in questions], labels)
    answers = given_answers(tokenizer, template, prompts, texts)
    words = [locate_question_words(question) for question in questions]
    located = locate_all(tokenizer, questions, words, prompts, answers)
    items = tuple(
        Item(spans.input_ids, spans.question_tokens, label)
        for spans, label in zip(located, labels, strict=True)
        if spans is not None and spans.question_tokens
    )
    ends = _line_ends(tokenizer)
    asked = tuple(prompt.ids for prompt in prompts)
    return Workload(items, f"{len(items)} questions of {dataset}", asked, ends, new_tokens)


def _answer_texts(true: Sequence[str], relations: Sequence[str | None], labels: Sequence[bool]) -> list[str]:
    """The true answer where the label says so, and elsewhere another one, of the same relation where there is one."""
    known: defaultdict[str | None, list[str]] = defaultdict(list)
    for text, relation in zip(true, relations, strict=True):
        known[relation].append(text)
    texts = []
    for index, label in enumerate(labels):
        others = known[relations[index]]
        turned = (others[(index + step) % len(others)] for step in range(len(others)))
        wrong = next((text for text in turned if text != true[index]), f"not {true[index]}")
        texts.append(true[index] if label else wrong)
    return texts


def _line_ends(tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end an answer: those with a line break, and the special ones."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
    broken = {token for token, text in enumerate(texts) if "\n" in text}
    return tuple(sorted(broken | set(tokenizer.all_special_ids)))


_SAMPLE_SECONDS = 0.01
_MATMUL_SIZE = {"cpu": 1536, "cuda": 8192}  # large enough that nothing but the multiplying counts
_MATMUL_REPEATS = 5


@dataclass(frozen=True)
class Measured:
    """What one repeat took."""

    seconds: float
    host_added_mb: float
    """What it took of the host's memory at most, beyond what the process held before."""
    device_added_mb: float | None
    """The same of the GPU's; None on the CPU."""


def measure(run: Callable[[], Any], device: torch.device) -> Measured:
    """Runs once and waits for the device."""
    _tidy(device)
    began_with, on_gpu = held_mb(device), device.type == "cuda"
    with _Sampler() as sampler:
        _wait(device)
        began = time.perf_counter()
        kept = run()
        _wait(device)
        seconds = time.perf_counter() - began
    del kept  # only here: what is handed back counts
    return Measured(
        seconds=seconds,
        host_added_mb=max(0.0, sampler.peak - began_with[0]),
        device_added_mb=torch.cuda.max_memory_allocated(device) / 2**20 - began_with[1] if on_gpu else None,
    )


def held_mb(device: torch.device) -> tuple[float, float]:
    """What this process holds now of the host's memory and of the GPU's."""
    return _resident_mb(), torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of large matrix products on this machine, the best of several."""
    size = _MATMUL_SIZE[device.type]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(_MATMUL_REPEATS):
        _wait(device)
        began = time.perf_counter()
        torch.mm(a, b)
        _wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


class _Sampler:
    """Watches the process's resident memory from a thread."""

    def __init__(self) -> None:
        self.peak = _resident_mb()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Sampler":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.peak = max(self.peak, _resident_mb())

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, _resident_mb())


def _resident_mb() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError):  # not Linux: the peak so far is all that the system tells
        import resource

        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _tidy(device: torch.device) -> None:
    """Gives back what earlier work has freed, so that it is not counted as this one's."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):  # another C library; the numbers are then a little larger
            return


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = [line.partition(":")[2].strip() for line in file if line.startswith(("model name", "CPU part"))]
        return named[0] if named else "unknown"
    except OSError:
        return "unknown"


Say = Callable[[str], None]
"""Reports progress, one line at a time."""
SHARED, OWN = 40, 24
"""Tokens of synthetic items, by default."""
_TOKENIZER_OF = "smollm2-135m"  # serves all shapes


@dataclass(frozen=True)
class Setting:
    """One benchmark that is running."""

    options: Options
    lm: LanguageModel
    peak: float
    """Operations per second of large matrix products, measured here."""
    say: Say
    held: tuple[float, float]
    """MB that the process with its model holds of the host's memory and of the GPU's."""

    @property
    def block_parameters(self) -> int:
        """Parameters of all blocks."""
        return block_parameters(self.lm)

    @property
    def peak_tokens_per_s(self) -> float:
        """Tokens per second if blocks cost nothing but their multiplications, at the measured peak."""
        return self.peak / (2 * self.block_parameters)

    def workload(self, n: int) -> Workload:
        """That many items, of the kind that was chosen."""
        options, lm = self.options, self.lm
        if not options.synthetic:
            made = _real(options, lm, n)
        else:
            shared = SHARED if options.shared is None else options.shared
            length = OWN if options.own is None else options.own
            made = synthetic(n, shared, length, int(lm.config.vocab_size), options.seed, options.new_tokens)
        _refuse_windows(lm, made)
        return made

    def race(self, runs: Mapping[str, Callable[[], Any]], title: str) -> dict[str, list[Measured]]:
        """All runs in turn (A B C A B C), so that noise hits all alike."""
        taken: dict[str, list[Measured]] = {name: [] for name in runs}
        for repeat in range(self.options.repeats):
            for name, run in runs.items():
                taken[name].append(measure(run, self.lm.device))
                seconds = taken[name][-1].seconds
                self.say(f"{title}: {name}, repeat {repeat + 1} of {self.options.repeats}: {seconds:.2f} s")
        return taken


def load_model(options: Options) -> LanguageModel:
    """The model; a shape is built without a tokenizer where the embedded model, which lends its own, is not here."""
    device = choose_device(options.device)
    if device == BALANCED:
        raise UserError(f"A benchmark runs on one device, not {BALANCED}; choose cuda or cpu.")
    dtype = choose_dtype(options.dtype, device)
    if not sources.is_shape(options.model) or dtype not in DTYPES or installed_path(_TOKENIZER_OF) is not None:
        return load(options.model, dtype, device)
    target = checked_device(device)
    config = sources.shape_config(options.model, sources.SHAPES[_TOKENIZER_OF].vocabulary)
    model = sources.build_shape(config, DTYPES[dtype], target).to(target)
    return wrap(model, None, sources.shape_title(options.model), options.model, random_weights=True)


def _real(options: Options, lm: LanguageModel, n: int) -> Workload:
    try:
        return real(n, options.dataset, lm.tokenizer, lm.needs_bos, options.seed, options.new_tokens)
    except ModuleNotFoundError as error:
        raise UserError(
            f"Real questions need the package {error.name!r}, which is not installed here; install all of anchorscope, "
            f"or run random tokens with --shared {SHARED} --own {OWN}."
        ) from error


def _refuse_windows(lm: LanguageModel, workload: Workload) -> None:
    # The other implementations are given one mask for all layers, which would erase a window.
    longest = max(item.length for item in workload.items)
    windows = [window for layer in range(lm.n_layers) if (window := lm.sliding_window(layer)) is not None]
    if windows and min(windows) < longest:
        raise UserError(
            f"Items have up to {longest} tokens, and layers of {lm.name!r} see only {min(windows)}; the ways could not "
            f"be compared. Choose shorter items (--shared and --own, at least {LEAST_OWN}) or another model."
        )


@dataclass(frozen=True)
class Row:
    """What was measured; what an implementation could not do is None and has a note."""

    work: str
    way: str
    """Name of the implementation; the key is part of the JSON object's contract."""
    unit: str = "items"
    """What is counted: `items`, `fits` or `questions`."""
    items: int | None = None
    """How many of them one repeat ran."""
    seconds: float | None = None
    """Of one repeat, the median."""
    seconds_min: float | None = None
    seconds_max: float | None = None
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    """Tokens through all blocks, without padding; one that runs through half of the blocks counts half."""
    speedup: float | None = None
    """The rate of `anchorscope` over this one's."""
    max_difference: float | None = None
    """What `difference_is` says."""
    relative_difference: float | None = None
    """The largest difference over the largest value."""
    difference_is: str | None = None
    """What the two differences compare."""
    auc_difference: float | None = None
    """Probes only: the largest difference of an AUC on held-out items."""
    peak_memory_mb: float | None = None
    """Of the device that computes, weights included; what other implementations hold is not counted."""
    host_peak_mb: float | None = None
    device_peak_mb: float | None = None
    added_memory_mb: float | None = None
    """What the work took beyond the process with its model."""
    share_of_peak: float | None = None
    """2 × parameters of the blocks × tokens run ÷ seconds ÷ the measured matrix-multiply peak."""
    streaming_items_per_s: float | None = None
    """Ours only: the knockout as a run does it, every state through the probes, only log-odds fetched."""
    streaming_share_of_peak: float | None = None
    setting: str | None = None
    """What the implementation chose before it was measured."""
    note: str | None = None
    """Why something is missing."""

    def timed(
        self,
        items: int,
        taken: Sequence[Measured],
        held: tuple[float, float],
        tokens: float | None = None,
        peak_tokens_per_s: float | None = None,
    ) -> "Row":
        """The same row with what its repeats took; `held` is what the process with its model holds of both memories."""
        all_seconds = [repeat.seconds for repeat in taken]
        seconds = median(all_seconds)
        host = max(repeat.host_added_mb for repeat in taken)
        on_gpu = [repeat.device_added_mb for repeat in taken if repeat.device_added_mb is not None]
        device = max(on_gpu) if on_gpu else None
        return replace(
            self,
            items=items,
            seconds=seconds,
            seconds_min=min(all_seconds),
            seconds_max=max(all_seconds),
            items_per_s=items / seconds,
            tokens_per_s=None if tokens is None else tokens / seconds,
            peak_memory_mb=held[0] + host if device is None else held[1] + device,
            host_peak_mb=held[0] + host,
            device_peak_mb=None if device is None else held[1] + device,
            added_memory_mb=host if device is None else device,
            share_of_peak=None if tokens is None or peak_tokens_per_s is None else tokens / seconds / peak_tokens_per_s,
        )


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows with our rate over each one's, within one work."""
    ours = {row.work: row.items_per_s for row in rows if row.way == "anchorscope" and row.items_per_s is not None}
    return [
        row
        if row.items_per_s is None or row.work not in ours
        else replace(row, speedup=ours[row.work] / row.items_per_s)
        for row in rows
    ]
