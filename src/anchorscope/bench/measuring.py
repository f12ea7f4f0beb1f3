"""What a benchmark measures and how: items, seconds and peak memory, and the rows they fill.

Items are token sequences with a common beginning, and keys to cut from all later queries; states are read at the last
token. Real items are questions with answers, half of them another question's. Synthetic ones are random tokens, whose
last is one of 16, every other of which means "true".
"""

import ctypes
import gc
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
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
from anchorscope.models.loading import (
    BALANCED,
    DTYPES,
    checked_device,
    choose_device,
    choose_dtype,
    load,
)
from anchorscope.models.wrapping import wrap

CUT_FIRST, CUT_LAST = 4, 9
"""Which of a synthetic item's own tokens are cut."""
LEAST_OWN = CUT_LAST + 3
"""Own tokens that a synthetic item needs: some follow the last cut one."""
FOLDS = 5
"""Training sets of the probes, per layer."""
_LAST_TOKENS = 16  # few, so that the label can be learned from the states


@dataclass(frozen=True)
class Item:
    ids: tuple[int, ...]
    keys: tuple[int, ...]
    """Positions that later ones may not attend to, in every layer or in one."""
    label: bool

    @property
    def length(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Workload:
    items: tuple[Item, ...]
    about: str
    prompts: tuple[tuple[int, ...], ...] = ()
    """What `generation` continues."""
    end_tokens: tuple[int, ...] = ()
    """Tokens that end an answer; empty for answers of equal length."""
    new_tokens: int = 16

    def first(self, n: int) -> "Workload":
        return replace(self, items=self.items[:n], prompts=self.prompts[:n])

    @property
    def tokens(self) -> int:
        """Tokens of all items, without padding."""
        return sum(item.length for item in self.items)

    @cached_property
    def shared(self) -> int:
        """Leading tokens that all items share, none of them cut."""
        limits = [min(item.keys) for item in self.items]
        return shared_prefix_length([item.ids for item in self.items], limits)

    @property
    def sequences(self) -> list[TokenSequence]:
        return [
            TokenSequence(item.ids, item.length - 1, (item.length - 1,))
            for item in self.items
        ]

    @property
    def cuts(self) -> list[Cut]:
        return [Cut(item.keys, "all") for item in self.items]


def synthetic(
    n: int, shared: int, own: int, vocabulary: int, seed: int, new_tokens: int = 16
) -> Workload:
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
        items.append(
            Item(
                ids,
                tuple(range(shared + CUT_FIRST, shared + CUT_LAST + 1)),
                last % 2 == 0,
            )
        )
    about = f"{n} items of {shared} shared and {own} own random tokens"
    return Workload(
        tuple(items), about, tuple(item.ids for item in items), (), new_tokens
    )


def real(
    n: int,
    dataset: str,
    tokenizer: Any,
    needs_bos: int | None,
    seed: int,
    new_tokens: int = 16,
) -> Workload:
    """Questions of a dataset with true answers and with answers of other questions."""
    # Only here: on a machine with nothing but torch and transformers, synthetic items are all that is needed.
    from anchorscope.answers.choose import choose_questions
    from anchorscope.answers.generate import given_answers
    from anchorscope.answers.template import build_prompts, make_template
    from anchorscope.datasets.catalog import open_dataset, parse_spec
    from anchorscope.spans.locate import locate_all
    from anchorscope.spans.question_spans import locate_question_words

    questions = choose_questions(open_dataset(parse_spec(dataset)), n, seed).questions
    order = (
        np.random.default_rng(seed).permutation(len(questions)).tolist()
    )  # any first items are then a fair sample
    questions = [questions[index] for index in order if questions[index].answers]
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
    tokens = tokenizer.batch_decode(
        [[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False
    )
    breaks = {token for token, text in enumerate(tokens) if "\n" in text}
    ends = tuple(sorted(breaks | set(tokenizer.all_special_ids)))
    return Workload(
        items,
        f"{len(items)} questions of {dataset}",
        tuple(prompt.ids for prompt in prompts),
        ends,
        new_tokens,
    )


def _answer_texts(
    true: Sequence[str], relations: Sequence[str | None], labels: Sequence[bool]
) -> list[str]:
    """The true answer where the label says so, else another one, of the same relation if possible."""
    answers_by_relation: defaultdict[str | None, list[str]] = defaultdict(list)
    for text, relation in zip(true, relations, strict=True):
        answers_by_relation[relation].append(text)
    texts = []
    for index, label in enumerate(labels):
        others = answers_by_relation[relations[index]]
        turned = (others[(index + step) % len(others)] for step in range(len(others)))
        wrong = next(
            (text for text in turned if text != true[index]), f"not {true[index]}"
        )
        texts.append(true[index] if label else wrong)
    return texts


_MATMUL_SIZE = {
    "cpu": 1536,
    "cuda": 8192,
}  # large enough that nothing but the multiplying counts
_MATMUL_REPEATS = 5


@dataclass(frozen=True)
class Measured:
    seconds: float
    added_mb: float
    """Peak memory of the computing device, beyond what the process held before."""


def measure(run: Callable[[], Any], device: torch.device) -> Measured:
    """Runs once and waits for the device."""
    _tidy(device)
    held = held_mb(device)
    began = time.perf_counter()
    result = run()
    _wait(device)
    seconds = time.perf_counter() - began
    peak = (
        torch.cuda.max_memory_allocated(device) / 2**20
        if device.type == "cuda"
        else _host_mb("VmHWM")
    )
    del result  # only here: what is handed back counts
    return Measured(seconds, max(0.0, peak - held))


def held_mb(device: torch.device) -> float:
    """This process's current memory on the computing device."""
    return (
        torch.cuda.memory_allocated(device) / 2**20
        if device.type == "cuda"
        else _host_mb("VmRSS")
    )


def _host_mb(kind: str) -> float:
    """The process's resident memory (VmRSS) or its peak since the last reset (VmHWM)."""
    lines = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    )
    return int(lines[kind].split()[0]) / 2**10


def _tidy(device: torch.device) -> None:
    """Frees memory and resets the peak, so that earlier work isn't counted."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(
        OSError, AttributeError
    ):  # not Linux, or another C library; the numbers are then a little larger
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    _wait(device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of large matrix products here, the best of several."""
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
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


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
    held: float
    """MB that the process with its model holds on the computing device."""

    @property
    def block_parameters(self) -> int:
        return block_parameters(self.lm)

    def workload(self, n: int) -> Workload:
        """That many items, of the kind that was chosen."""
        options, lm = self.options, self.lm
        if options.synthetic:
            shared, own = options.shared or SHARED, options.own or OWN
            made = synthetic(
                n,
                shared,
                own,
                int(lm.config.vocab_size),
                options.seed,
                options.new_tokens,
            )
        else:
            try:
                made = real(
                    n,
                    options.dataset,
                    lm.tokenizer,
                    lm.needs_bos,
                    options.seed,
                    options.new_tokens,
                )
            except ModuleNotFoundError as error:
                raise UserError(
                    f"Real questions need the package {error.name!r}, which is not installed here; install all of "
                    f"anchorscope, or run random tokens with --shared {SHARED} --own {OWN}."
                ) from error
        longest = max(item.length for item in made.items)
        windows = [
            window
            for layer in range(lm.n_layers)
            if (window := lm.sliding_window(layer)) is not None
        ]
        if (
            windows and min(windows) < longest
        ):  # the others are given one mask for all layers, which would erase it
            raise UserError(
                f"Items have up to {longest} tokens, and layers of {lm.name!r} see only {min(windows)}; the ways could "
                f"not be compared. Choose shorter items (--shared and --own, at least {LEAST_OWN}) or another model."
            )
        return made

    def race(
        self, runs: Mapping[str, Callable[[], Any]], title: str
    ) -> dict[str, list[Measured]]:
        """All runs in turn (A B C A B C), so that noise affects all alike."""
        taken: dict[str, list[Measured]] = {name: [] for name in runs}
        for repeat in range(self.options.repeats):
            for name, run in runs.items():
                taken[name].append(measure(run, self.lm.device))
                seconds = taken[name][-1].seconds
                self.say(
                    f"{title}: {name}, repeat {repeat + 1} of {self.options.repeats}: {seconds:.2f} s"
                )
        return taken


def load_model(options: Options) -> LanguageModel:
    """The model; a shape has no tokenizer if the embedded model isn't installed."""
    device = choose_device(options.device)
    if device == BALANCED:
        raise UserError(
            f"A benchmark runs on one device, not {BALANCED}; choose cuda or cpu."
        )
    dtype = choose_dtype(options.dtype, device)
    if (
        not sources.is_shape(options.model)
        or dtype not in DTYPES
        or installed_path(_TOKENIZER_OF) is not None
    ):
        return load(options.model, dtype, device)
    target = checked_device(device)
    config = sources.shape_config(
        options.model, sources.SHAPES[_TOKENIZER_OF].vocabulary
    )
    model = sources.build_shape(config, DTYPES[dtype], target).to(target)
    return wrap(
        model,
        None,
        sources.shape_title(options.model),
        options.model,
        random_weights=True,
    )


@dataclass(frozen=True)
class Row:
    work: str
    way: str
    unit: str = "items"
    """What is counted: `items`, `fits` or `questions`."""
    items: int | None = None
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
    difference_is: str | None = None
    peak_memory_mb: float | None = None
    """On the computing device, weights included, other implementations excluded."""
    share_of_peak: float | None = None
    """2 × parameters of the blocks × tokens run ÷ seconds ÷ the measured matrix-multiply peak."""
    setting: str | None = None
    """What the implementation chose before it was measured."""
    note: str | None = None
    """Why something is missing."""

    def timed(
        self,
        items: int,
        taken: Sequence[Measured],
        setting: Setting,
        tokens: float | None = None,
    ) -> "Row":
        """The same row with what its repeats took."""
        all_seconds = [repeat.seconds for repeat in taken]
        seconds, added = median(all_seconds), max(repeat.added_mb for repeat in taken)
        return replace(
            self,
            items=items,
            seconds=seconds,
            seconds_min=min(all_seconds),
            seconds_max=max(all_seconds),
            items_per_s=items / seconds,
            tokens_per_s=None if tokens is None else tokens / seconds,
            peak_memory_mb=setting.held + added,
            share_of_peak=None
            if tokens is None
            else 2 * setting.block_parameters * tokens / seconds / setting.peak,
        )


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows with our rate over each one's, within one work."""
    ours = {
        row.work: row.items_per_s
        for row in rows
        if row.way == "anchorscope" and row.items_per_s is not None
    }
    return [
        replace(row, speedup=ours[row.work] / row.items_per_s)
        if row.items_per_s and row.work in ours
        else row
        for row in rows
    ]
