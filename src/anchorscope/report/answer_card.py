"""The answer of a run: one sentence, whether to trust it and why, the picture, the numbers, and what to do next.

Every word comes from the run's readings and tables, so the card can't say more than they do. The page, the terminal, a
notebook, `anchorscope view` and answer.json show the same card. A number that cannot be a share (below 0 or above
100%) or whose interval spans most of the scale is never quoted as the answer.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from anchorscope.report.findings import Findings, auc_of, nested_auc
from anchorscope.report.page_writer import fragment
from anchorscope.report.palette import display_name
from anchorscope.report.reading import MARKS, Reading, finite
from anchorscope.report.shares import has_shares, share_at, share_layer
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.verdicts import Verdict, has_interval
from anchorscope.report.wording import as_percent, count, estimate, listing, number, spanned
from anchorscope.stats.estimate import Estimate

MOST_STEPS = 3
"""Next steps on a card; a longer list is not read."""
WIDEST_QUOTED = 0.6
"""A share whose interval is wider says too little to be quoted as an answer."""
OUTSIDE = 0.1
"""How far an estimate may lie outside 0–100% and still be noise around an end of the scale."""
RANDOM_WEIGHTS = "RANDOM WEIGHTS"
"""How the warning begins that the card gives in its own words."""
UNAVAILABLE = "not available on "
"""How a warning begins that an experiment can't be run on a dataset."""
NOISE = "This model has random weights: it was never trained, so every number here is noise."


@dataclass(frozen=True)
class Trust:
    """Whether to believe the answer."""

    verdict: Literal["yes", "partly", "no"]
    reason: str


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
    """One bar of the picture: how much of the evidence is removed by hiding something."""

    label: str
    share: float
    low: float | None
    high: float | None
    control: bool = False
    random: float | None = None
    """What hiding random words removes, marked on the bar."""

    @property
    def text(self) -> str:
        """48% [34, 64]."""
        ends = "" if self.low is None or self.high is None else f" [{100 * self.low:.0f}, {100 * self.high:.0f}]"
        beside = "" if self.random is None else f", random {as_percent(self.random)}"
        return f"{as_percent(self.share)}{ends}{beside}".replace("-", "−")

    @property
    def style(self) -> str:
        """Where the bar, its interval and its mark end, in percent of the scale."""
        low, high = (self.share if end is None else end for end in (self.low, self.high))
        ends = {"--share": self.share, "--low": low, "--high": high, "--random": self.random or 0.0}
        return "; ".join(f"{name}: {100 * min(1.0, max(0.0, value)):.1f}%" for name, value in ends.items())


@dataclass(frozen=True)
class Tile:
    """A question with its number and verdict, on the detectors' page."""

    label: str
    figure: str
    detail: str
    verdict: Verdict

    @property
    def mark(self) -> str:
        """The verdict as one sign."""
        return MARKS[self.verdict]


@dataclass(frozen=True)
class AnswerCard:
    """What a run says first."""

    model: str
    sentence: str
    trust: Trust | None = None
    numbers: tuple[Number, ...] = ()
    warnings: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    tiles: tuple[Tile, ...] = ()
    bars: tuple[Bar, ...] = ()
    folder: str = ""
    """Where the run was when the commands were written."""

    def record(self) -> dict[str, Any]:
        """As answer.json holds it."""
        return asdict(self)


def card_from_record(record: dict[str, Any]) -> AnswerCard:
    """The card that answer.json holds."""
    return AnswerCard(
        record["model"],
        record["sentence"],
        Trust(**record["trust"]) if record.get("trust") else None,
        tuple(Number(**one) for one in record.get("numbers", ())),
        tuple(record.get("warnings", ())),
        tuple(NextStep(**one) for one in record.get("next_steps", ())),
        tuple(Tile(**one) for one in record.get("tiles", ())),
        tuple(Bar(**one) for one in record.get("bars", ())),
        record.get("folder", ""),
    )


def card_html(card: AnswerCard) -> str:
    """The card as a piece of HTML with its own style."""
    return fragment("card", {"card": card})


def answer_card(findings: Findings, readings: Sequence[Reading]) -> AnswerCard:
    """The card of a run."""
    return AnswerCard(
        findings.model,
        answer_sentence(findings, readings),
        trust_in(findings, readings),
        _numbers(findings, readings),
        _warnings(findings),
        next_steps(findings, readings),
        bars=_bars(findings),
        folder=findings.folder,
    )


# The sentence


def _share(findings: Findings, dataset: str, intervention: str = "knockout") -> Estimate | None:
    """The share that is removed, at the layer that is tested."""
    return share_at(findings, dataset, share_layer(findings, dataset), intervention)


def is_quotable(share: Estimate | None) -> bool:
    """Whether a share can be: within the scale, with an interval that is narrower than most of it."""
    if share is None or not has_interval(share):
        return False
    return -OUTSIDE <= share.value <= 1 + OUTSIDE and share.ci_high - share.ci_low <= WIDEST_QUOTED


def answer_sentence(findings: Findings, readings: Sequence[Reading]) -> str:
    """How much of the probe's evidence is removed by hiding the key words, and by hiding random words."""
    if findings.random_weights:
        return NOISE
    quoted = [name for name in findings.datasets if is_quotable(_share(findings, name))]
    if not quoted:
        return _no_answer(findings)
    verdicts = {name: _verdict(readings, name, "share_needed") for name in quoted}
    hardly = all(verdict == "no" for verdict in verdicts.values())
    shares, random = ([_clipped(_share(findings, name, cut)) for name in quoted] for cut in ("knockout", "random"))
    if len(quoted) == 1:
        layer = share_layer(findings, quoted[0])
        removed, beside = _with_interval(shares[0], first=True), _with_interval(random[0])
        where = f" at layer {layer}" + (f" ({display_name(quoted[0])})" if len(findings.datasets) > 1 else "")
    else:
        removed, beside = (spanned((one.value for one in some if one), as_percent) for some in (shares, random))
        where = f" on {len(quoted)} datasets"
    hiding = f"Hiding the question's key words removes {'hardly any' if hardly else removed} of the probe's evidence"
    hiding += f": {removed}{where}" if hardly else where
    others = f"; hiding random words removes {beside}" if beside else ""
    left_out = [display_name(name) for name in findings.datasets if name not in quoted]
    unclear = [display_name(name) for name, verdict in verdicts.items() if verdict not in ("yes", "no")]
    rest = f" Inconclusive on {listing([*left_out, *unclear])}." if left_out or (unclear and len(quoted) > 1) else ""
    if unclear and not rest:
        rest = " This may be zero: the test is inconclusive."
    return f"{hiding}{others}.{rest}"


def _no_answer(findings: Findings) -> str:
    """Why there is no share to quote."""
    used = int(findings.counts["used"].sum() or 0) if "used" in findings.counts.columns else 0
    answers = f"{count(used)} answer{'' if used == 1 else 's'}"
    probes = [auc for name in findings.datasets if (auc := nested_auc(findings, name)) is not None]
    if not probes or all(has_interval(auc) and auc.ci_low <= 0.5 for auc in probes):
        spread = f" (AUC {spanned((one.value for one in probes), lambda value: number(value, 2))})" if probes else ""
        return f"The probe can't tell true from false answers here{spread}, so there is no evidence to divide."
    if not has_shares(findings):
        return "This run did not measure how much of the probe's evidence depends on the question."
    confidence = [auc for name in findings.datasets if (auc := auc_of(findings, name, "confidence-mean", None))]
    beaten = ""
    if confidence and max(one.value for one in probes) < max(one.value for one in confidence):
        best = [number(max(one.value for one in some), 2) for some in (probes, confidence)]
        beaten = f"; the probe (AUC {best[0]}) is worse than the model's own confidence ({best[1]})"
    return (
        f"Inconclusive: {answers} are too few to tell how much of the probe's evidence depends on the question{beaten}."
    )


def _clipped(share: Estimate | None) -> Estimate | None:
    """A share as a part of a whole: noise beyond an end of the scale is that end."""
    if share is None:
        return None
    value, low, high = (
        min(1.0, max(0.0, end)) if end == end else end for end in (share.value, share.ci_low, share.ci_high)
    )
    return replace(share, value=value, ci_low=low, ci_high=high)


def _with_interval(share: Estimate | None, first: bool = False) -> str:
    """48% (95% CI 34–64)."""
    if share is None:
        return ""
    ends = f"{number(100 * share.ci_low, 0)}–{number(100 * share.ci_high, 0)}"
    return as_percent(share.value) + (f" ({'95% CI ' if first else ''}{ends})" if has_interval(share) else "")


# Trust


def _verdict(readings: Sequence[Reading], dataset: str, claim: str) -> Verdict | None:
    wanted = (dataset, None, claim)
    return next((one.verdict for one in readings if (one.dataset, one.assignment, one.claim) == wanted), None)


def controls_in(readings: Sequence[Reading]) -> list[Reading]:
    """The controls that count: those of the question share and of the paper's chart."""
    return [reading for reading in readings if reading.standing == "control" and reading.key and reading.dataset]


def counted_controls(controls: Sequence[Reading]) -> str:
    """2 of 6 controls passed, 3 inconclusive, 1 failed."""
    if not controls:
        return "no control was measured"
    words: dict[Verdict, str] = {"inconclusive": "inconclusive", "not measured": "not measured", "no": "failed"}
    verdicts = [reading.verdict for reading in controls]
    parts = [f"{verdicts.count(verdict)} {word}" for verdict, word in words.items() if verdict in verdicts]
    passed = f"{verdicts.count('yes')} of {len(controls)} controls passed"
    return ", ".join([passed, *parts])


def trust_in(findings: Findings, readings: Sequence[Reading]) -> Trust:
    """One verdict with its reason: a control that fails where the answer is read counts most."""
    controls = controls_in(readings)
    counted = counted_controls(controls)
    if findings.random_weights:
        return Trust("no", "random weights carry no evidence")
    if not any(is_quotable(_share(findings, name)) for name in findings.datasets):
        return Trust("no", f"there is no answer to trust yet; {counted}")
    failed = [reading for reading in controls if reading.verdict == "no"]
    at_tested = [reading for reading in failed if _fails_where_tested(findings, reading)]
    if at_tested:
        return Trust("no", f"{_failure(findings, at_tested[0])}; {counted}")
    if failed:
        return Trust("partly", f"{_failure(findings, failed[0])}; {counted}")
    beyond = {_verdict(readings, name, "share_beyond_random") for name in findings.datasets}
    if beyond != {"yes"}:
        return Trust("partly", f"the key words may remove no more than random words do; {counted}")
    return Trust("yes" if all(reading.verdict == "yes" for reading in controls) and controls else "partly", counted)


def _fails_where_tested(findings: Findings, reading: Reading) -> bool:
    return not reading.failing or share_layer(findings, reading.dataset or "") in reading.failing


def _failure(findings: Findings, reading: Reading) -> str:
    """What has failed, and where."""
    dataset = f" on {display_name(reading.dataset or '')}" if len(findings.datasets) > 1 else ""
    where = f" at {layer_names(reading.failing)}" if reading.failing else ""
    return f"{reading.sentence[:1].lower()}{reading.sentence[1:]}{where}{dataset}"


def _warnings(findings: Findings) -> tuple[str, ...]:
    """What a reader has to know first: the same of several datasets once, and what could not be done as a count."""
    texts: dict[str, list[str]] = {}
    for warning in findings.warnings:
        name = next((one for one in findings.datasets if warning.startswith(f"{one}: ")), "")
        if not warning.startswith((UNAVAILABLE, RANDOM_WEIGHTS)):
            texts.setdefault(warning.removeprefix(f"{name}: "), []).append(display_name(name) if name else "")
    lines = [f"{listing(names)}: {text}" if any(names) else text for text, names in texts.items()]
    if absent := findings.unavailable.height:
        checks = "1 check is" if absent == 1 else f"{absent} checks are"
        lines.append(f"{checks} not available on these questions; “Further evidence” lists them")
    return tuple(lines)


# Numbers and the picture

_NAMES = {
    "share_needed": "evidence removed by hiding the key words",
    "share_beyond_random": "more than hiding random words removes",
    "items_differ": "difference between the upper and lower third of the items",
    "adds_to_confidence": "AUC gained over the model's own confidence",
    "auc_above_nulls": "AUC gained over the best probe that sees less",
}


def _numbers(findings: Findings, readings: Sequence[Reading]) -> tuple[Number, ...]:
    """The numbers of the answer, dataset by dataset, with unit, interval and verdict."""
    numbers = []
    for dataset in findings.datasets:
        where = f" ({display_name(dataset)})" if len(findings.datasets) > 1 else ""
        for claim, name in _NAMES.items():
            reading = next((one for one in readings if (one.dataset, one.claim) == (dataset, claim)), None)
            if reading is not None:
                numbers.append(_number(f"{name}{where}", reading.estimate, reading.unit, reading.verdict))
        random = _share(findings, dataset, "random")
        numbers.append(_number(f"evidence removed by hiding random words{where}", random, "share of the evidence"))
        numbers.append(_number(f"AUC of the probe{where}", nested_auc(findings, dataset), "AUC"))
        confidence = auc_of(findings, dataset, "confidence-mean", None)
        numbers.append(_number(f"AUC of the model's own confidence{where}", confidence, "AUC"))
    return tuple(number for number in numbers if number.value is not None)


def _number(name: str, value: Estimate | None, unit: str, verdict: Verdict | None = None) -> Number:
    if value is None:
        return Number(name, None, None, None, unit, verdict)
    return Number(name, finite(value.value), finite(value.ci_low), finite(value.ci_high), unit, verdict)


_BARS = {"knockout": "Key words hidden", "random": "Random words hidden", "none": "Nothing hidden"}


def _bars(findings: Findings) -> tuple[Bar, ...]:
    """What hiding words removes at the layer that is tested, beside the controls; none without a number to quote."""
    quoted = [name for name in findings.datasets if is_quotable(_share(findings, name)) and not findings.random_weights]
    if len(findings.datasets) == 1:
        shares = {cut: _share(findings, name, cut) for name in quoted for cut in _BARS}
        return tuple(_bar(_BARS[cut], share, control=cut != "knockout") for cut, share in shares.items() if share)
    bars = []
    for name in quoted:
        share, random = (_share(findings, name, cut) for cut in ("knockout", "random"))
        if share is not None:
            bars.append(_bar(display_name(name), share, random=random.value if random else None))
    return tuple(bars)


def _bar(label: str, share: Estimate, control: bool = False, random: float | None = None) -> Bar:
    return Bar(label, share.value, finite(share.ci_low), finite(share.ci_high), control, random)


# Next steps


def next_steps(findings: Findings, readings: Sequence[Reading]) -> tuple[NextStep, ...]:
    """At most three, the most useful first."""
    if findings.random_weights:
        return (NextStep("Run it with trained weights."),)
    folder = findings.folder or "RUN"
    made = set(findings.experiments["experiment"].to_list()) if findings.experiments.height else set()
    steps = _layers_to_leave_out(readings, len(findings.datasets) > 1)
    if not any(is_quotable(_share(findings, name)) for name in findings.datasets):
        steps.append(NextStep("Ask more questions: these are too few for an answer."))
    if "matched" not in made:
        again = command_again(findings, folder, evidence="matched,wordings")
        steps.append(NextStep("Rule out that the wording alone explains it:", again))
    if any(one.claim == "adds_to_confidence" and one.verdict == "yes" for one in readings):
        again = command_again(findings, folder, keep="states,states-cut,detection")
        detect = shlex.join(["anchorscope", "detect", folder, "--out", f"{folder}-detectors"])
        steps.append(NextStep("Train a hallucination detector:", f"{again} && {detect}"))
    if any(one.claim == "items_differ" and one.verdict == "inconclusive" for one in readings):
        steps.append(NextStep("Ask more questions to see whether items differ."))
    return tuple(steps[:MOST_STEPS])


def command_again(findings: Findings, folder: str, **options: str) -> str:
    """What adds something to the run: a command, or a call in Python where no command line can name the model."""
    if findings.options is not None:
        named = "".join(f", {name}={value!r}" for name, value in {**findings.options, **options}.items())
        return f"anchorscope.run(model, tokenizer=tokenizer, out={folder!r}{named})"
    words = ["anchorscope", "run", f"{folder}/recipe.toml", "--out", folder]
    return shlex.join([*words, *(word for name, value in options.items() for word in (f"--{name}", value))])


def _layers_to_leave_out(readings: Sequence[Reading], several: bool) -> list[NextStep]:
    """Layers at which random words do more than a quarter of what the key words do."""
    lines = {"random_small": "ΔP", "share_random_small": "the question share"}
    failing: dict[str, set[int]] = {}
    for reading in readings:
        if reading.claim in lines and reading.key and reading.failing:
            failing.setdefault(lines[reading.claim], set()).update(reading.failing)
    if failing and several:
        return [NextStep("Do not interpret the layers where random words fail as a control (see “Can I trust it?”).")]
    return [
        NextStep(f"Do not interpret {line} at {layer_names(tuple(layers))}: random words remove too much there.")
        for line, layers in failing.items()
    ]


def number_text(value: Number) -> str:
    """A number in words: shares in percent, others with two digits."""
    ends = [end for end in (value.ci_low, value.ci_high) if end is not None]
    low, high = ends if len(ends) == 2 else (float("nan"), float("nan"))
    shown = Estimate(value.value or 0.0, low, high, 0, "")
    share = value.unit == "share of the evidence"
    return estimate(shown, 0, 100.0, "%") if share else estimate(shown, 2)
