"""The answer of a run: one sentence, whether to trust it and why, the picture, the numbers, and what to do next.

Every word comes from the run's readings and tables, so the card can't say more than they do. The page, the terminal, a
notebook, `anchorscope view` and answer.json show the same card. Shares are quoted only of datasets that have enough
evidence to divide (`findings.why_silent`).
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anchorscope.report.findings import (
    NEEDS_QUESTION,
    PARTS,
    TOGETHER,
    Findings,
    auc_of,
    find,
    nested_auc,
    select,
    share_at,
    statistics,
    why_silent,
)
from anchorscope.report.palette import PART_COLOURS, display_name
from anchorscope.report.reading import EVIDENCE, Reading, finite
from anchorscope.report.verdicts import Verdict, has_interval
from anchorscope.report.wording import (
    MISSING,
    as_percent,
    count,
    layer_names,
    listing,
    number,
)
from anchorscope.stats.estimate import Estimate

RANDOM_WEIGHTS = "RANDOM WEIGHTS"
"""How the warning begins that the card gives in its own words."""
UNAVAILABLE = "not available on "
"""How a warning begins that an experiment can't be run on a dataset."""
NO_EVIDENCE = "random weights carry no evidence"
NOISE = "This model has random weights: it was never trained, so every number here is noise."


@dataclass(frozen=True)
class Trust:
    """Whether to believe the answer."""

    verdict: Literal["yes", "partly", "no"]
    reason: str

    def words(self, question: str = "Trust it?") -> str:
        """Trust it? Partly: 3 of 5 controls passed."""
        return f"{question} {self.verdict.capitalize()}: {self.reason}."


@dataclass(frozen=True)
class Number:
    """A number of the answer, for programs."""

    name: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    unit: str
    verdict: Verdict | None = None


@dataclass(frozen=True)
class NextStep:
    """Something to do now; `command` is empty where no command does it."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class Bar:
    """One bar of the picture: the four parts of the evidence, which sum to 1."""

    label: str
    parts: dict[str, float]
    low: float | None
    """Interval of the first part."""
    high: float | None
    control: bool = False

    @property
    def text(self) -> str:
        """29% [20, 38] together, 20% question alone, 40% answer alone, 11% either alone."""
        ends = (
            ""
            if self.low is None or self.high is None
            else f" [{100 * self.low:.0f}, {100 * self.high:.0f}]"
        )
        first, *rest = (
            f"{as_percent(share)}{{}} {SHORT_NAMES[part]}"
            for part, share in self.parts.items()
        )
        return ", ".join(
            [first.format(ends.replace("-", "−")), *(text.format("") for text in rest)]
        )


SHORT_NAMES = {
    "together": "together",
    "question": "question alone",
    "answer": "answer alone",
    "either": "either alone",
}
"""The parts in a legend."""


@dataclass(frozen=True)
class AnswerCard:
    """What a run says first."""

    model: str
    sentence: str
    trust: Trust | None = None
    numbers: tuple[Number, ...] = ()
    warnings: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    bars: tuple[Bar, ...] = ()
    folder: str = ""
    """Where the run was when the commands were written."""

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Name, colour and words of every part, for the bars."""
        return [
            (part, PART_COLOURS[part], words) for part, words in SHORT_NAMES.items()
        ]

    def record(self) -> dict[str, Any]:
        """As answer.json holds it."""
        return asdict(self)


def answer_card(findings: Findings, readings: Sequence[Reading]) -> AnswerCard:
    """The card of a run."""
    return AnswerCard(
        findings.model,
        answer_sentence(findings, readings),
        trust_in(findings, readings),
        _numbers(findings, readings),
        _warnings(findings),
        next_steps(findings, readings),
        bars=tuple(
            bar
            for dataset in findings.datasets
            for cut in ("knockout", "random")
            if (bar := part_bar(findings, dataset, cut)) is not None
        ),
        folder=findings.folder,
    )


# The sentence


def _spoken(findings: Findings) -> list[str]:
    """The datasets whose shares are quoted."""
    return [
        name
        for name in findings.datasets
        if why_silent(findings, name) is None and not findings.random_weights
    ]


def _named(findings: Findings, names: Sequence[str], words: str) -> str:
    """The names of some datasets, filled into words; nothing where the run has only one."""
    return (
        words.format(listing([display_name(name) for name in names]))
        if len(findings.datasets) > 1
        else ""
    )


def answer_sentence(findings: Findings, readings: Sequence[Reading]) -> str:
    """How much of the evidence needs both, the key words, and random words; where nothing is said."""
    if findings.random_weights:
        return NOISE
    spoken, sentences = (
        _spoken(findings),
        [_of_sources(findings, name) for name in findings.datasets],
    )
    if not spoken:
        return " ".join(filter(None, [*sentences, _no_answer(findings)]))
    silent = [name for name in findings.datasets if name not in spoken]
    verdicts = {name: _verdict(readings, name, "needs_both") for name in spoken}
    together = _over(findings, spoken, TOGETHER)
    if set(verdicts.values()) == {"no"}:
        together = f"Hardly any ({together})"
    where = _named(findings, spoken, " ({})") if silent else ""
    sentences.append(
        f"{together} of the probe's evidence{where} needs question and answer together; hiding "
        f"the question's key words removes {_over(findings, spoken, NEEDS_QUESTION)}, "
        f"hiding random words {_over(findings, spoken, NEEDS_QUESTION, 'random')}."
    )
    if unclear := [
        name for name, verdict in verdicts.items() if verdict == "inconclusive"
    ]:
        where = _named(findings, unclear, " on {}")
        sentences.append(
            f"The first share may be zero{where}: the test is inconclusive."
        )
    sentences += [
        f"No shares of {display_name(name)}: {why_silent(findings, name)}."
        for name in silent
    ]
    return " ".join(filter(None, sentences))


def _of_sources(findings: Findings, dataset: str) -> str:
    """How much of the evidence needs the passage, where shares are quoted, and how many answers ignored it."""
    rows, where = (
        select(statistics(findings, "sources"), dataset=dataset),
        _named(findings, [dataset], " on {}"),
    )
    for name, words in (("context", "the passage"), ("thinking", "the thinking")):
        ignored = find(rows, quantity="ignored", variant=name)
        if ignored is None:
            continue
        counted = f"{count(round(ignored.value * ignored.n))} of {count(ignored.n)} answers ignored"
        need = find(rows, quantity="need", variant=name, against=None, group=None)
        if need is None or why_silent(findings, dataset) is not None:
            return f"{counted} {words}{where}."
        return f"{_with_interval(need)} of the evidence{where} needs {words}; {counted} it."
    return ""


def _over(
    findings: Findings,
    datasets: Sequence[str],
    part: str,
    intervention: str = "knockout",
) -> str:
    """A share over the band; the first part of a single dataset has its interval, several have their range."""
    shares = [
        share
        for name in datasets
        if (share := share_at(findings, name, intervention, part)) is not None
    ]
    if len(shares) == 1 and part == TOGETHER:
        return _with_interval(shares[0])
    percents = [
        as_percent(_on_scale(value))
        for value in sorted(share.value for share in shares)
    ]
    return (
        " to ".join(dict.fromkeys((percents[0], percents[-1]))) if percents else MISSING
    )


def _no_answer(findings: Findings) -> str:
    """Why there is no share to quote, and whether the probe is worth anything."""
    reasons: dict[str, list[str]] = {}
    for name in findings.datasets:
        reasons.setdefault(why_silent(findings, name) or "", []).append(name)
    whys = "; ".join(
        f"{reason}{_named(findings, names, ' ({})')}"
        for reason, names in reasons.items()
    )
    probe, confidence = (
        max(
            (
                auc.value
                for name in findings.datasets
                if (auc := area(name)) is not None
            ),
            default=math.nan,
        )
        for area in (
            lambda name: nested_auc(findings, name),
            lambda name: auc_of(findings, name, "confidence-mean"),
        )
    )
    worse = f" The probe (AUC {number(probe, 2)}) is worse than the model's own confidence ({number(confidence, 2)})."
    unknown = "Inconclusive: the parts of the probe's evidence can't be estimated"
    return f"{unknown}: {whys}.{worse if probe < confidence else ''}"


def _with_interval(share: Estimate) -> str:
    """48% (95% CI 34–64)."""
    value, low, high = map(_on_scale, (share.value, share.ci_low, share.ci_high))
    interval = (
        f" (95% CI {number(100 * low, 0)}–{number(100 * high, 0)})"
        if has_interval(share)
        else ""
    )
    return as_percent(value) + interval


def _on_scale(share: float) -> float:
    """As part of a whole: noise beyond an end of the scale is that end."""
    return min(1.0, max(0.0, share)) if share == share else share


# Trust


def _verdict(readings: Sequence[Reading], dataset: str, claim: str) -> Verdict | None:
    return next(
        (reading.verdict for reading in readings if reading.id == f"{dataset}:{claim}"),
        None,
    )


def controls_in(readings: Sequence[Reading]) -> list[Reading]:
    """All controls: those of the parts and those of the paper's chart."""
    return [reading for reading in readings if reading.standing == "control"]


def controls_of_parts(readings: Sequence[Reading]) -> list[Reading]:
    """The controls of the four parts, which know no groups."""
    return [reading for reading in controls_in(readings) if not reading.of_groups]


def controls_of_chart(readings: Sequence[Reading]) -> list[Reading]:
    """The controls of ΔP, which compare groups."""
    return [reading for reading in controls_in(readings) if reading.of_groups]


def counted_controls(controls: Sequence[Reading]) -> str:
    """2 of 6 controls passed, 3 inconclusive, 1 failed."""
    if not controls:
        return "no control was measured"
    words: dict[Verdict, str] = {
        "inconclusive": "inconclusive",
        "not measured": "not measured",
        "no": "failed",
    }
    verdicts = [reading.verdict for reading in controls]
    parts = [
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in words.items()
        if verdict in verdicts
    ]
    passed = f"{verdicts.count('yes')} of {len(controls)} controls passed"
    return ", ".join([passed, *parts])


def trust_in(findings: Findings, readings: Sequence[Reading]) -> Trust:
    """Whether to believe the parts: one verdict with its reason."""
    controls = controls_of_parts(readings)
    counted = counted_controls(controls)
    if findings.random_weights:
        return Trust("no", NO_EVIDENCE)
    if not _spoken(findings):
        return Trust("no", f"there is no answer to trust yet; {counted}")
    failed = [reading for reading in controls if reading.verdict == "no"]
    if failed:
        return Trust("no", f"{_failure(findings, failed[0])}; {counted}")
    if {
        _verdict(readings, name, "share_beyond_random") for name in _spoken(findings)
    } != {"yes"}:
        return Trust(
            "partly", f"the key words may carry no more than random words do; {counted}"
        )
    return _by_count(controls)


def trust_in_chart(findings: Findings, readings: Sequence[Reading]) -> Trust:
    """Whether to believe the paper's chart; a control that fails at some layers leaves the others."""
    controls = controls_of_chart(readings)
    if findings.random_weights:
        return Trust("no", NO_EVIDENCE)
    failed = [reading for reading in controls if reading.verdict == "no"]
    everywhere = [reading for reading in failed if not reading.failing]
    for reading in (*everywhere, *failed):
        reason = f"{_failure(findings, reading)}; {counted_controls(controls)}"
        return Trust("no" if everywhere else "partly", reason)
    return _by_count(controls)


def _failure(findings: Findings, reading: Reading) -> str:
    """What a failed control says, and where it failed."""
    said = reading.sentence[:1].lower() + reading.sentence[1:]
    layers = f" at {layer_names(reading.failing)}" if reading.failing else ""
    dataset = _named(findings, [reading.dataset or ""], " on {}")
    return f"{said}{layers}{dataset}"


def _by_count(controls: Sequence[Reading]) -> Trust:
    """Yes where all controls passed, and partly where some are open."""
    passed = bool(controls) and all(reading.verdict == "yes" for reading in controls)
    return Trust("yes" if passed else "partly", counted_controls(controls))


def _warnings(findings: Findings) -> tuple[str, ...]:
    """What a reader has to know first: the same of several datasets once, and what could not be done as a count."""
    texts: dict[str, list[str]] = {}
    for warning in findings.warnings:
        name = next(
            (name for name in findings.datasets if warning.startswith(f"{name}: ")), ""
        )
        if not warning.startswith((UNAVAILABLE, RANDOM_WEIGHTS)):
            texts.setdefault(warning.removeprefix(f"{name}: "), []).append(
                display_name(name) if name else ""
            )
    lines = [
        f"{listing(names)}: {text}" if any(names) else text
        for text, names in texts.items()
    ]
    if absent := findings.unavailable.height:
        checks = "1 check is" if absent == 1 else f"{absent} checks are"
        lines.append(
            f"{checks} not available on these questions; “Further evidence” lists them"
        )
    return tuple(lines)


# Numbers and the picture

_READINGS = {
    "needs_both": "evidence that needs question and answer together",
    "share_beyond_random": "more that needs the key words than random words",
    "adds_to_confidence": "AUC gained over the model's own confidence",
    "auc_above_nulls": "AUC gained over the best probe that sees less",
}
_SHARES = {
    "question alone": ("knockout", "question"),
    "answer alone": ("knockout", "answer"),
    "either of them": ("knockout", "either"),
    "needs the question's key words": ("knockout", NEEDS_QUESTION),
    "needs random words": ("random", NEEDS_QUESTION),
}


def _numbers(findings: Findings, readings: Sequence[Reading]) -> tuple[Number, ...]:
    """The numbers of the answer, dataset by dataset, with unit, interval and verdict."""
    numbers: list[Number] = []

    def add(
        name: str, value: Estimate | None, unit: str, verdict: Verdict | None = None
    ) -> None:
        if value is not None and math.isfinite(value.value):
            name += _named(findings, [dataset], " ({})")
            numbers.append(
                Number(
                    name,
                    value.value,
                    finite(value.ci_low),
                    finite(value.ci_high),
                    unit,
                    verdict,
                )
            )

    for dataset in findings.datasets:
        for reading in readings:
            if reading.dataset == dataset and reading.claim in _READINGS:
                add(
                    _READINGS[reading.claim],
                    reading.estimate,
                    reading.unit,
                    reading.verdict,
                )
        for name, share in _SHARES.items() if dataset in _spoken(findings) else ():
            add(f"evidence: {name}", share_at(findings, dataset, *share), EVIDENCE)
        add("AUC of the probe", nested_auc(findings, dataset), "AUC")
        add(
            "AUC of the model's own confidence",
            auc_of(findings, dataset, "confidence-mean"),
            "AUC",
        )
    return tuple(numbers)


def part_bar(findings: Findings, dataset: str, cut: str = "knockout") -> Bar | None:
    """The parts over the band under a cut; None of a dataset whose shares are not quoted."""
    shares = {part: share_at(findings, dataset, cut, part) for part in PARTS}
    values = {part: share.value for part, share in shares.items() if share is not None}
    first = shares[TOGETHER]
    if dataset not in _spoken(findings) or first is None or len(values) < len(PARTS):
        return None
    label = "random words" if cut == "random" else display_name(dataset)
    return Bar(
        label, values, finite(first.ci_low), finite(first.ci_high), cut == "random"
    )


# Next steps


def next_steps(findings: Findings, readings: Sequence[Reading]) -> tuple[NextStep, ...]:
    """At most three, the most useful first."""
    if findings.random_weights:
        return (NextStep("Run it with trained weights."),)
    folder, steps = findings.folder or "RUN", []
    controls = [reading for reading in readings if reading.claim == "random_small"]
    if failing := {layer for control in controls for layer in control.failing or ()}:
        where = (
            "where a control fails"
            if len(findings.datasets) > 1
            else f"at {layer_names(sorted(failing))}"
        )
        steps.append(NextStep(f"Do not interpret ΔP {where}."))
    if not _spoken(findings):
        steps.append(NextStep("Ask more questions: these are too few for an answer."))
    elif "matched" not in set(findings.experiments["experiment"]):
        again = command_again(findings, folder, evidence="matched,wordings")
        steps.append(NextStep("Rule out the wording:", again))
    adds = [reading for reading in readings if reading.claim == "adds_to_confidence"]
    detectors = Path(folder) / "detectors"
    if (detectors / "detection.json").is_file():
        page = detectors / "report.html"
        steps.append(NextStep(f"Its detectors are compared in {page}."))
    elif any(reading.verdict == "yes" for reading in adds):
        detect = shlex.join(["anchorscope", "detect", folder])
        # the model is in memory: only a call in Python can run it
        if findings.options is not None:
            detect = command_again(findings, folder, keep="states")
        steps.append(NextStep("Train a hallucination detector:", detect))
    return tuple(steps[:3])  # a longer list is not read


def command_again(findings: Findings, folder: str, **options: str) -> str:
    """What adds something to the run: a command, or a call in Python where no command line can name the model."""
    if findings.options is not None:
        named = "".join(
            f", {name}={value!r}"
            for name, value in {**findings.options, **options}.items()
        )
        return f"anchorscope.run(model, tokenizer=tokenizer, out={folder!r}{named})"
    words = ["anchorscope", "run", f"{folder}/recipe.toml", "--out", folder]
    return shlex.join(
        [
            *words,
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ]
    )
