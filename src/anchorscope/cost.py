"""The cost of a run, estimated before it starts: operations, minutes, memory and disk.

A pass takes 2 × parameters × tokens operations. Fits and tables count as the passes that take as long, measured on the
demo (360 items, 30 layers of width 576, two Neoverse-N1 cores). Minutes are operations over the rate of a matrix
product of the model's width on this machine; on a GPU, start and statistics are seconds of their own.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import NamedTuple

from anchorscope.answers.choose import FOR_A_CHART, LabelCounter
from anchorscope.catalogue import DETECTION_RUNS, KNOCKOUT, SAMPLES
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import SITES
from anchorscope.errors import counted
from anchorscope.evidence_parts.principal import default_directions
from anchorscope.interventions.intervention import NOISE_ITEMS
from anchorscope.models.process_settings import threads
from anchorscope.recipe import Recipe

REPORT = "report"
"""The last step: result files and, on request, figures and the page."""
USUAL_FIT_SEEDS = 5
MOST_RANDOM_CUTS = 5
"""Default number of random cuts on a fast machine."""
CPU_CUT_OPERATIONS = 1e12
"""Budget of all random cuts together on a CPU: a quarter of a minute on two cores. The first cut shows whether random
words do the same as key words; further ones only smooth its line."""

# of a question; exact numbers would need every question tokenized first
_CHARACTERS_PER_TOKEN = 4
_TEMPLATE_TOKENS = 3  # of a question's own: what stands around it
_ANSWER_TOKENS = 2
_DECODING = 2.5  # decoding a token takes as long as reading this many: its matrix products are small
_USED = 0.6  # of all answers while labels are unknown: the demo's share after balancing
_CUT = 0.85  # tokens of a cut item that are run again: those after the first cut one
_ANSWER_ALONE = 0.2  # tokens of an item without its question
_PROBE_FOLD = 3.4e3  # operations per number of the states
_PRINCIPAL = 6e3  # likewise
_CLEAN_EVIDENCE, _VIEW = (
    1.2e3,
    0.7e3,
)  # per item and direction², of one layer at one place
_RESAMPLED = 7e3  # per resample, item and layer
_DETECTOR_FITS = 9e4  # per number of one place's states and fold seed
_OTHER_FITS = 13  # as many seeds' worth: permuted labels, bootstrap, saving
_ITEM_TESTS = 1e8  # per item: intervals and tests of the parts
# operations per second of the machine on which all this was measured
_REFERENCE_RATE = 6.2e10
_REPORT_SECONDS, _TABLES_SECONDS, _START_SECONDS = (
    7.0,
    1.0,
    9.0,
)  # there: page and figures, tables alone, imports
_LOAD_RATE = 4e8  # bytes of weights per second: hashed, read, checked
_OTHER_EXPERIMENTS = {
    "experiment-matched": 0.4,
    "experiment-wordings": 2.9,
}  # passes; others were not measured
_DETECTION = {"detection-columns": 2.0, "detection-states": 2.7}  # passes
_PROCESS_BYTES = 7e8  # Python with its libraries
_FOLDER_BYTES = 3e7  # tables, figures, page, and what steps keep
_GPU_SHARE = 0.35  # of a large product's rate that passes of many small ones reach
_GPU_START_SECONDS, _GPU_DATASET_SECONDS = (
    25.0,
    22.0,
)  # imports; grading, fits, tables, which wait for Python (an H200)


@dataclass(frozen=True)
class DatasetSize:
    """What the cost of a dataset depends on; `used` is a guess until answers are labelled."""

    questions: int
    to_answer: int
    """Questions without a supplied answer."""
    used: int
    tokens: float
    """Tokens of a question that aren't shared with all others."""


def dataset_size(questions: Sequence[Question], recipe: Recipe) -> DatasetSize:
    """From the questions alone: the same for a run and its dry run."""
    n = len(questions)
    outlook = LabelCounter(questions).outlook(recipe.balance)
    labelled = sum(outlook.supplied)
    guessed = round(_USED * (n - labelled)) + labelled
    used = min(
        guessed,
        2 * outlook.pairs if recipe.balance != "none" else n,
        2 * recipe.max_per_class,
    )
    texts = [
        (*question.context, question.thinking or "", question.question)
        for question in questions
    ]
    characters = sum(len(text) for own in texts for text in own) / max(n, 1)
    to_answer = sum(question.model_answer is None for question in questions)
    return DatasetSize(
        n,
        to_answer,
        used,
        characters / _CHARACTERS_PER_TOKEN + _TEMPLATE_TOKENS + recipe.thinking,
    )


class ModelSize(NamedTuple):
    parameters: int
    n_layers: int
    width: int


def choose_random_cuts(
    recipe: Recipe, model: ModelSize, sizes: Iterable[DatasetSize]
) -> Recipe:
    """The recipe with its number of random cuts: the given one, or what the device has time for.

    It depends on recipe, model, questions and kind of device only, so that the same command gives the same numbers.
    """
    if recipe.random_cuts is not None:
        return recipe
    number = MOST_RANDOM_CUTS
    if recipe.device == "cpu":
        operations = sum(_pass(model, size) * _CUT for size in sizes)
        number = max(
            1, min(MOST_RANDOM_CUTS, int(CPU_CUT_OPERATIONS // max(operations, 1.0)))
        )
    return recipe.model_copy(update={"random_cuts": number})


def _pass(model: ModelSize, size: DatasetSize) -> float:
    """Operations of one pass over the used items of a dataset."""
    return 2.0 * model.parameters * size.used * (size.tokens + _ANSWER_TOKENS)


def step_costs(recipe: Recipe, model: ModelSize, size: DatasetSize) -> dict[str, float]:
    """Operations of every step of a dataset whose cost is known, in order."""
    once, cuts = _pass(model, size), recipe.random_cuts or 1
    places = len(SITES) * len({"final", recipe.position})
    layers, everywhere = model.n_layers, model.n_layers * places
    states = float(size.used * model.width)  # numbers of one layer at one place
    k = min(
        recipe.directions or default_directions(size.used, model.width),
        max(1, size.used - 1),
        model.width,
    )
    reduced = float(size.used * k * k)
    answered = size.to_answer * (size.tokens + _DECODING * (_ANSWER_TOKENS + 1))
    costs = {
        "answers": 2.0 * model.parameters * answered,
        "labels": 0.0,
        "tokens": 0.01 * once,
        "clean-states": once,
        "attention-mass": 0.0,  # a part of the clean pass, as others that cost nothing here
        "before-answer": 0.0,
        "probes": _PROBE_FOLD * recipe.folds * everywhere * states,
        "clean-scores": 0.0,
        "effects-knockout": once
        * (_CUT * (1 + cuts) + min(NOISE_ITEMS, size.used) / max(size.used, 1)),
        "principal-states": _PRINCIPAL * (2 * everywhere + cuts * layers) * states,
        "cut-states": 0.0,
        "evidence-terms": (
            _CLEAN_EVIDENCE * (everywhere + layers)
            + _VIEW * (everywhere + (2 * cuts + 6) * layers)
        )
        * reduced,
        "answer-alone": once * _ANSWER_ALONE,
        "null-scores": 2 * layers * (_PRINCIPAL * states + _CLEAN_EVIDENCE * reduced),
        "log-probs": 0.0,
        "evidence-parts": _ITEM_TESTS * size.used,
        "refits": 2 * _PROBE_FOLD * recipe.folds * layers * states,
        "permuted-refits": _PROBE_FOLD * recipe.folds * states,
        "tables": _RESAMPLED
        * recipe.bootstrap
        * size.used
        * layers
        * places
        / len(SITES),
    }
    if recipe.thinking:
        costs["thinking"] = (
            2.0
            * model.parameters
            * size.to_answer
            * (size.tokens + _DECODING * recipe.thinking)
        )
    if recipe.random_weights:
        costs["evidence-random-weights"] = 2 * once
    for experiment, step, views in (
        ("patching", "evidence-resample", 3),
        ("wordings", "evidence-paraphrase", 1),
    ):
        if experiment in recipe.evidence:
            solved = (_CLEAN_EVIDENCE + views * _VIEW) * reduced
            costs[step] = once + layers * ((1 + views) * _PRINCIPAL * states + solved)
    if "detection" in recipe.keep:
        written = (
            max(SAMPLES)
            * _DECODING
            * (_ANSWER_TOKENS + 1)
            / (size.tokens + _ANSWER_TOKENS)
        )
        costs |= {
            "detection-samples": once * (1 + written),
            **{name: once * n for name, n in _DETECTION.items()},
        }
    further = {f"experiment-{name}" for name in recipe.evidence} & set(
        _OTHER_EXPERIMENTS
    )
    return costs | {name: once * _OTHER_EXPERIMENTS[name] for name in sorted(further)}


def detector_cost(model: ModelSize, size: DatasetSize, seeds: int) -> float:
    """Operations of fitting, comparing and saving the detectors that read one pass."""
    numbers = float(model.n_layers * size.used * model.width)
    return (seeds + _OTHER_FITS) * _DETECTOR_FITS * numbers if seeds else 0.0


def report_cost(recipe: Recipe, has_page: bool = True) -> float:
    return (
        _REPORT_SECONDS if recipe.report and has_page else _TABLES_SECONDS
    ) * _REFERENCE_RATE


@dataclass(frozen=True)
class Cost:
    used: int
    """Answers that are used, a guess where labels are not known yet."""
    passes: int
    """Over the used answers; answering comes before."""
    random_cuts: int
    operations: float
    operations_per_second: float
    """Of this machine, measured."""
    seconds: float
    memory_bytes: float
    disk_bytes: float
    at_least: bool
    """Whether the recipe has experiments of unknown cost."""
    with_fits: bool
    """Whether detectors are fitted afterwards, which is counted."""
    too_few: int | None
    """Used answers of the smallest dataset where they are too few for the parts of the evidence."""
    fewer_random_cuts: bool
    """Whether a faster device would get more random cuts."""

    @property
    def sentence(self) -> str:
        """One or two lines for a terminal."""
        least = "at least " if self.at_least else "about "
        minutes = self.seconds / 60
        took = f"{minutes:.1f} min" if minutes < 10 else f"{minutes:,.0f} min"
        fits = ", fits of detectors included" if self.with_fits else ""
        text = (
            f"cost: {self.passes} pass{'es' * (self.passes > 1)} over about {self.used:,} used answers, "
            f"{self.operations:.1e} operations; {least}{took} here{fits}, {self.memory_bytes / 1e9:.1f} GB of memory, "
            f"{self.disk_bytes / 1e9:.2f} GB of disk"
        )
        if self.too_few is not None:
            text += (
                f"\nabout {self.too_few:,} used answers in a dataset: its parts of the evidence need {FOR_A_CHART}, "
                f"and with fewer most of its chart stays undecided"
            )
        if self.fewer_random_cuts:
            cuts = counted(self.random_cuts, "random cut")
            text += f"\n{cuts} on a CPU; --random-cuts {MOST_RANDOM_CUTS} makes the control smoother and the run longer"
        return text


def run_cost(
    recipe: Recipe,
    model: ModelSize,
    sizes: Iterable[DatasetSize],
    asked: Recipe,
    steps: Collection[str] | None = None,
    fit_seeds: int = 0,
) -> Cost:
    """The cost of a resolved recipe, or of some of its steps; `asked` is what the user wrote.

    `fit_seeds` are the fold seeds of detectors that are fitted afterwards; 0 where none are.
    """
    has_cuts = steps is None or f"effects-{KNOCKOUT}" in steps
    measured = {
        KNOCKOUT,
        *(name.removeprefix("experiment-") for name in _OTHER_EXPERIMENTS),
    }
    itemsize = 4 if recipe.dtype == "float32" else 2
    cuts, places = recipe.random_cuts or 1, len(SITES) * len({"final", recipe.position})
    operations = report_cost(recipe, has_cuts)
    used, memory, disk, start = 0, 0.0, _FOLDER_BYTES, _GPU_START_SECONDS
    counts: list[int] = []
    for size in sizes:
        used += size.used
        counts.append(size.used)
        operations += detector_cost(model, size, fit_seeds)
        start += _GPU_DATASET_SECONDS
        costs = step_costs(recipe, model, size)
        operations += sum(
            cost for name, cost in costs.items() if steps is None or name in steps
        )
        states = float(model.n_layers * size.used * model.width * itemsize)
        # clean and knockout everywhere, random cuts at the headline
        memory = max(memory, states * (2 * places + cuts))
        kept = (places + 1) * ("states" in recipe.keep) + 2 * (
            "states-cut" in recipe.keep
        )
        kept += len(DETECTION_RUNS) * ("detection" in recipe.keep)
        made = (
            places + 4 + len(DETECTION_RUNS) * ("detection" in recipe.keep)
        )  # there only while it runs
        disk += states * (kept + made)
    with threads(recipe.threads):
        rate = measured_rate(recipe.device, recipe.dtype, model.width)
    weights = float(model.parameters * itemsize)
    if recipe.device == "cpu":
        start = _START_SECONDS * _REFERENCE_RATE / rate
    return Cost(
        used=used,
        passes=4 + cuts + 2 * recipe.random_weights
        if has_cuts
        else 1,  # clean, knockout, nothing, answers alone
        random_cuts=cuts,
        operations=operations,
        operations_per_second=rate,
        seconds=start + weights / _LOAD_RATE + operations / rate,
        memory_bytes=_PROCESS_BYTES + weights + memory,
        disk_bytes=disk,
        at_least=has_cuts and not measured.issuperset(recipe.evidence),
        with_fits=fit_seeds > 0,
        too_few=min(counts) if has_cuts and min(counts) < FOR_A_CHART else None,
        fewer_random_cuts=has_cuts
        and asked.random_cuts is None
        and cuts < MOST_RANDOM_CUTS,
    )


def measured_rate(device: str, dtype: str, width: int) -> float:
    """Operations per second of a product of the model's width on this device, when nothing else runs there.

    On a CPU its own time is measured: a dry run and its run then say the same, however busy the machine is.
    """
    import torch
    from torch.utils.benchmark import Timer
    from torch.utils.benchmark.utils.timer import timer as default_timer

    where = torch.device("cuda" if device.startswith(("cuda", "balanced")) else device)
    kind = getattr(torch, dtype)
    rows = (
        8192 if where.type == "cuda" else 512 if kind is torch.float32 else 8
    )  # halves may be slow on a CPU
    left, right = (
        torch.ones(shape, dtype=kind, device=where)
        for shape in ((rows, width), (width, 4 * width))
    )
    cores, on_cpu = torch.get_num_threads(), where.type == "cpu"
    timer = Timer(
        "left @ right",
        globals={"left": left, "right": right},
        timer=process_time if on_cpu else default_timer,
        num_threads=cores,
    )
    seconds = timer.blocked_autorange(min_run_time=0.15).median
    return 8.0 * rows * width * width / seconds * (cores if on_cpu else _GPU_SHARE)
