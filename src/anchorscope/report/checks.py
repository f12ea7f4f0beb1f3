"""Every check of a run, in the order in which the page shows them, and `read`, which applies them.

Each check is a function that measures, below its words: topic, clause, unit, standing. A clause holds both of its
forms: "the probe {adds|adds next to nothing} to …". First the parts of the evidence: two tested questions answer what
was asked, controls say whether to trust it. Then the probe, and the groups and curves of the paper's rule. What the
sorting rule makes true by itself (Q-Anchored lies below A-Anchored) is no check. Thresholds are in `verdicts.py`.

Controls of the parts are asked over the band of the parts, those of ΔP at every layer, with intervals that hold for all
layers at once: one that fails at one layer with 95 % confidence has failed, and the layers are named. Numbers of whole
curves come from their bootstrap draws (`stats/curves.py`), so that choosing the most striking layer costs width.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import polars as pl

from anchorscope.report import verdicts
from anchorscope.report.findings import (
    NEEDS_QUESTION,
    PROBE,
    TOGETHER,
    Findings,
    auc_of,
    band_layers,
    evidence_rows,
    find,
    first_estimate,
    first_row,
    has_shares,
    nested_auc,
    row_estimate,
    sampled_curve,
    share_at,
    share_layer,
    summary_of,
    truth_readers,
    why_silent,
)
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.reading import EVIDENCE, Reading, Standing
from anchorscope.report.verdicts import (
    Verdict,
    above,
    below,
    between,
    difference,
    gained,
    size_ratio,
)
from anchorscope.report.wording import (
    MISSING,
    capitalised,
    estimate,
    layer_names,
    number,
    p_value_cell,
    percent,
    points,
)
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import FEWEST_GROUPS
from anchorscope.stats.estimate import LEVEL, Estimate, holm


@dataclass(frozen=True)
class Subject:
    """What a check is applied to."""

    findings: Findings
    dataset: str

    def summary(
        self,
        quantity: str,
        intervention: str | None = "knockout",
        group: str | None = None,
    ) -> Estimate | None:
        """A quantity of the summary; without an interval where it rests on too few items."""
        value = summary_of(
            self.findings,
            self.dataset,
            quantity,
            intervention=intervention,
            group=group,
        )
        # a bootstrap of so few has no honest interval
        if value is not None and 0 < value.n < FEWEST_GROUPS:
            return replace(value, ci_low=math.nan, ci_high=math.nan)
        return value

    def share(
        self, intervention: str = "knockout", part: str = NEEDS_QUESTION
    ) -> Estimate | None:
        """A share of the evidence over the band."""
        return share_at(self.findings, self.dataset, intervention, part)

    @property
    def layer(self) -> int | None:
        """The middle layer of the band."""
        return share_layer(self.findings, self.dataset)


@dataclass(frozen=True)
class Measured:
    """The number of a check, the verdict on it, and what else belongs to it."""

    estimate: Estimate | None = None
    numbers: str = ""
    """The numbers in words, shown after the sentence."""
    verdict: Verdict = "inconclusive"
    """Of a tested check it follows from the corrected p-value instead."""
    layer: int | None = None
    p_value: float | None = None
    failing: tuple[int, ...] | None = None
    doubtful: tuple[int, ...] | None = None


Measure = Callable[[Subject], Measured | None]
"""None where the check does not apply."""


@dataclass(frozen=True)
class Check:
    """One claim, its measure and its sentences."""

    claim: str
    topic: str
    clause: str
    """The claim, with both forms of what differs: "the curve {recovers|does not recover}"."""
    measure: Measure
    unit: str = "points"
    standing: Standing = "description"
    of_groups: bool = False
    scope: str = "dataset"
    group: str | None = None

    def sentence(self, verdict: Verdict) -> str:
        """What may be said, without numbers."""
        words = {
            "inconclusive": "it is unclear whether ",
            "not measured": "not measured: ",
        }.get(verdict, "")
        return capitalised(words + self.form(verdict))

    def form(self, verdict: Verdict) -> str:
        """The clause as it is said where it holds, or where it does not."""
        form = 2 if verdict == "no" else 1
        return re.sub(r"\{(.*?)\|(.*?)\}", lambda forms: forms.group(form), self.clause)

    def reading(
        self, subject: Subject, measured: Measured, p_corrected: float | None
    ) -> Reading:
        """The check applied to a run; `p_corrected` is that of a tested one."""
        number, numbers = measured.estimate, measured.numbers
        verdict: Verdict = measured.verdict if number is not None else "not measured"
        if number is None or p_corrected is None:
            p_corrected = None
        else:
            verdict = verdicts.above_zero(number, p_corrected)
            numbers += f"; p {_p_words(measured.p_value)}, corrected {_p_words(p_corrected)}; n = {number.n}"
        has_value = number is not None and not math.isnan(number.value)
        values = vars(measured) | {
            "numbers": numbers if has_value else MISSING,
            "layer": measured.layer if has_value else None,
            "verdict": verdict,
            "p_corrected": p_corrected,
        }
        return Reading(
            id=f"{subject.dataset}:{self.claim}",
            claim=self.claim,
            topic=self.topic,
            statement=self.form("yes"),
            sentence=self.sentence(verdict),
            unit=self.unit,
            subject=display_name(subject.dataset),
            model=subject.findings.model,
            dataset=subject.dataset,
            site=subject.findings.site,
            position=subject.findings.position,
            of_groups=self.of_groups,
            group=self.group,
            scope=self.scope,
            standing=self.standing,
            key=self.standing != "description",
            **values,
        )


CHECKS: list[Check] = []
"""All checks of a dataset."""


def _check(
    topic: str, clause: str, unit: str, **options: Any
) -> Callable[[Measure], Measure]:
    """Registers a check; the function's name is the claim's, and the other options are those of `Check`."""

    def register(measure: Measure) -> Measure:
        CHECKS.append(Check(measure.__name__, topic, clause, measure, unit, **options))
        return measure

    return register


_control = partial(_check, unit="ratio", standing="control")
_tested = partial(_check, unit=EVIDENCE, standing="tested")
_of_probe = partial(_check, unit="AUC")
_of_curve = partial(_check, unit="points", of_groups=True, scope="curve")


def read(findings: Findings) -> list[Reading]:
    """All readings of a run, dataset by dataset."""
    has_parts = has_shares(findings)
    results = [
        (check, subject, measured)
        for dataset in findings.datasets
        for check in CHECKS
        if has_parts or check.standing != "tested"
        for subject in [Subject(findings, dataset)]
        if (measured := check.measure(subject)) is not None
    ]
    tested = [
        measured.p_value for check, _, measured in results if check.standing == "tested"
    ]
    # all tests of the run together
    corrected = iter(holm([math.nan if p is None else p for p in tested]))
    return [
        check.reading(
            subject, measured, next(corrected) if check.standing == "tested" else None
        )
        for check, subject, measured in results
    ]


def _p_words(p: float | None) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"


# The parts of the evidence, over the band of layers: two tested questions, the controls, and probes that see less


@_tested(
    "The match",
    "{part|hardly any} of the probe's evidence needs question and answer together",
)
def needs_both(subject: Subject) -> Measured:
    """Tested by its interval, which is a normal one."""
    share, dataset = subject.share(part=TOGETHER), subject.dataset
    if share is None or why_silent(subject.findings, dataset) is not None:
        return Measured()
    numbers = f"{estimate(share)} over layers {band_layers(subject.findings, dataset)}"
    return Measured(
        share, numbers, layer=subject.layer, p_value=verdicts.p_from_interval(share)
    )


@_tested(
    "More than any words",
    "the key words carry {more|no more} of it than random words do",
)
def share_beyond_random(subject: Subject) -> Measured:
    """The difference of the two shares, as the run tested it."""
    row = first_row(
        evidence_rows(subject.findings, subject.dataset, "above_random"),
        group=NEEDS_QUESTION,
    )
    if row is None or why_silent(subject.findings, subject.dataset) is not None:
        return Measured()
    more, p_value = row_estimate(row), row["p_value"]
    if p_value is None or math.isnan(p_value):
        p_value = verdicts.p_from_interval(more)
    numbers = (
        f"{estimate(more)} more; random words alone {estimate(subject.share('random'))}"
    )
    return Measured(more, numbers, layer=subject.layer, p_value=p_value)


def _beside_knockout(
    subject: Subject, cut: str, least: float | None = None
) -> Measured | None:
    """What a control takes, over what the key words take: less than a quarter, or at least `least`."""
    floor = evidence_rows(subject.findings, subject.dataset, "floor")
    control = (first_estimate(floor) if cut == "floor" else None) or subject.share(cut)
    if control is None:
        return None
    ratio = size_ratio(control, subject.share())
    verdict = (
        below(ratio, verdicts.SMALL_RATIO) if least is None else above(ratio, least)
    )
    return Measured(
        ratio,
        f"needs {estimate(control)}, ratio {estimate(ratio)}",
        verdict,
        subject.layer,
    )


_LACKS = "{holds nearly all of the evidence|lacks more than a quarter as much of the evidence as the cut state}"
_RATIOS = {
    "share_random_small": (
        "random",
        "Random words",
        "{less|more} than a quarter as much of the evidence needs random words as needs the key words",
    ),
    "share_floor_small": (
        "floor",
        "State of another site",
        f"the clean state of another site {_LACKS}",
    ),
    "share_random_weights": (
        "random-weights",
        "Random weights",
        "random weights of the same shape have {less|more} than a quarter of the share",
    ),
    "share_paraphrase_small": (
        "paraphrase",
        "State of a paraphrased question",
        f"the clean state of a paraphrased question {_LACKS}",
    ),
}
"""Controls that should take little of the evidence, beside what the key words take."""

for _claim, (_cut, _topic, _clause) in _RATIOS.items():
    CHECKS.append(
        Check(
            _claim,
            _topic,
            _clause,
            partial(_beside_knockout, cut=_cut),
            "ratio",
            "control",
        )
    )


@_control(
    "Size of the shift",
    "the random cut moves the states {at least|less than} four fifths as far as the key words' cut",
)
def displacement_matched(subject: Subject) -> Measured | None:
    """How far the random cut moves the states, over how far the knockout does; medians, without an interval."""
    rows = evidence_rows(subject.findings, subject.dataset, "displacement")
    key_words, random = (find(rows, intervention=cut) for cut in ("knockout", "random"))
    if key_words is None or random is None:
        return None
    ratio = random.value / key_words.value
    measured = Estimate(ratio, math.nan, math.nan, random.n, "ratio of medians")
    numbers = f"key words {number(key_words.value, 2)}, random words {number(random.value, 2)}"
    return Measured(
        measured,
        numbers,
        "yes" if ratio >= verdicts.MATCHED_DISPLACEMENT else "no",
        subject.layer,
    )


@_control("Permuted labels", "permuted labels give {no|a} share", unit=EVIDENCE)
def share_permuted_zero(subject: Subject) -> Measured | None:
    """Labels that say nothing: an interval that leaves out zero refutes it, and a wide one decides nothing."""
    share, limit = subject.share("permuted"), verdicts.NEGLIGIBLE_SHARE
    if share is None:
        return None
    has_share = abs(share.value) > limit and share.ci_low * share.ci_high > 0
    small = share.ci_low > -limit and share.ci_high < limit
    verdict: Verdict = "no" if has_share else "yes" if small else "inconclusive"
    return Measured(share, f"needs {estimate(share)}", verdict, subject.layer)


@_control(
    "Key words of another question",
    "another question's key words take {at least|less than} half as much of the evidence as hiding the key words",
)
def share_resample_holds(subject: Subject) -> Measured | None:
    """What another item's key words take, where they were put in: the text has no hole."""
    return _beside_knockout(subject, "resample", verdicts.LEAST_RESAMPLED)


@_of_probe(
    "Probes that see less",
    "the probe reads truth {better than every|no better than the best} probe that sees less (question only, answer "
    "only, words)",
)
def auc_above_nulls(subject: Subject) -> Measured | None:
    """The probe beside the best probe that sees less; better than all of them needs all of them."""
    readers = truth_readers(subject.findings, subject.dataset)
    probe = readers.pop(PROBE, None)
    if probe is None or not readers:
        return None
    best = max(readers, key=lambda name: readers[name].value)
    gains = {name: difference(probe, area) for name, area in readers.items()}
    wanted = ("question only", "answer only", "words")
    lacking = [
        name
        for name in wanted
        if not any(reader.startswith(name) for reader in readers)
    ]
    unknown = f"; not known: {', '.join(lacking)}" if lacking else ""
    # What sees less is read over the band in half splits, and so is the probe here: another number than the card's.
    nested = nested_auc(subject.findings, subject.dataset)
    how = ""
    if nested is not None and estimate(nested) != estimate(probe):
        how = f" over the band's layers, in half splits (the card's {estimate(nested)}: at each fold's own layer)"
    numbers = f"AUC {estimate(probe)}{how}; best of the others, {best}: {estimate(readers[best])}{unknown}"
    each = {gained(gain) for gain in gains.values()}
    worst = next(verdict for verdict in verdicts.WORST_FIRST if verdict in each)
    return Measured(
        gains[best], numbers, "inconclusive" if lacking and worst == "yes" else worst
    )


# The groups of the paper's rule, the probe, and the controls of ΔP


@_check(
    "Who is in the groups",
    "the rule {mostly sorts|does not simply sort} answers into true and false ones",
    "difference of shares",
    of_groups=True,
)
def sorts_by_label(subject: Subject) -> Measured:
    """How far the groups differ in true answers."""
    q, a = (subject.summary("true_share", group=group) for group in GROUPS)
    gap = difference(q, a)
    # the other way round is sorting by label as well
    if gap is not None and gap.value < 0:
        gap = Estimate(-gap.value, -gap.ci_high, -gap.ci_low, gap.n, gap.method)
    numbers = f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored"
    return Measured(gap, numbers, above(gap, verdicts.LABEL_SORTING))


@_check(
    "Common shift",
    'the cut {moves|does not move} the probe towards "false"',
    "probability",
    of_groups=True,
)
def towards_false(subject: Subject) -> Measured:
    """How far the mean probability of "true" changes."""
    before, after = (
        subject.summary(f"mean_probability_{when}") for when in ("before", "after")
    )
    change = difference(after, before)
    numbers = f'mean probability of "true": {estimate(before)} before, {estimate(after)} after'
    return Measured(change, numbers, below(change, 0.0))


@_of_probe(
    "Beside confidence",
    "the probe adds {to|next to nothing to} the model's own confidence",
)
def adds_to_confidence(subject: Subject) -> Measured:
    """Probe and confidence together beside confidence alone."""
    gain = subject.summary("auc_beyond_confidence", "clean", "nested")
    both = nested_auc(subject.findings, subject.dataset, kind="nested+confidence")
    alone = auc_of(subject.findings, subject.dataset, "confidence-mean")
    numbers = f"AUC of both {estimate(both)}, of confidence alone {estimate(alone)}, difference {estimate(gain)}"
    return Measured(gain, numbers, gained(gain))


@_of_probe(
    "What survives",
    "with the key words hidden, a probe trained again {still tells true from false|hardly beats guessing}",
)
def signal_survives(subject: Subject) -> Measured:
    """A probe trained on the cut states beside one that learned permuted labels."""
    refit = nested_auc(
        subject.findings, subject.dataset, "knockout", kind="nested-refit"
    )
    gain, chance = (
        subject.summary(name, group="refit")
        for name in ("auc_beyond_permuted", "auc_permuted")
    )
    return Measured(
        gain,
        f"AUC {estimate(refit)}; with permuted labels {estimate(chance)}",
        gained(gain),
    )


@_check(
    "ΔP with random words hidden, where key words move it by over 10 points",
    "random words move the Q-Anchored line {less|more} than a quarter as far as the key words",
    "ratio",
    standing="control",
    of_groups=True,
)
def random_small(subject: Subject) -> Measured:
    """Asked wherever the key words lower the line visibly, in either direction.

    A layer fails by an interval for all layers, since the worst one is picked; it passes by its own interval, since
    every layer has to.
    """
    own = {cut: _falls(subject, cut) for cut in ("knockout", "random")}
    joint = {cut: _widened(falls) for cut, falls in own.items()}
    needed = tuple(
        layer
        for layer, fall in joint["knockout"].items()
        if fall.ci_low > verdicts.SEEN_BY_EYE
    )
    pairs = {
        layer: (joint["random"][layer], joint["knockout"][layer])
        for layer in needed
        if layer in own["random"]
    }
    ratios = {
        layer: ratio
        for layer, pair in pairs.items()
        if (ratio := size_ratio(*pair)) is not None
    }
    if not ratios:
        return Measured()
    worst = max(ratios, key=lambda layer: ratios[layer].value)
    over = tuple(
        layer for layer, ratio in ratios.items() if ratio.value >= verdicts.SMALL_RATIO
    )
    failing = tuple(
        layer for layer, pair in pairs.items() if _beyond_quarter(*pair).ci_low > 0
    )
    passed = [
        layer
        for layer in pairs
        if _beyond_quarter(own["random"][layer], own["knockout"][layer]).ci_high < 0
    ]
    unsure = tuple(layer for layer in needed if layer not in (*failing, *passed))
    named = {"above": over, "significantly above": failing, "inconclusive": unsure}
    where = "".join(
        f"; {word} at {layer_names(layers)}" for word, layers in named.items() if layers
    )
    numbers = f"highest ratio {estimate(ratios[worst])} at layer {worst}{where}"
    doubtful = tuple(layer for layer in over if layer not in failing)
    verdict: Verdict = "no" if failing else "inconclusive" if unsure else "yes"
    return Measured(
        ratios[worst], numbers, verdict, worst, failing=failing, doubtful=doubtful
    )


def _falls(subject: Subject, intervention: str) -> dict[int, Estimate]:
    """How much the Q-Anchored line falls at every layer that has an honest interval."""
    rows = subject.findings.drawn_curves(subject.dataset, Q_ANCHORED, intervention)
    rows = rows.filter(
        pl.col("n_groups") >= FEWEST_GROUPS,
        pl.col("ci_low").is_finite(),
        pl.col("ci_high").is_finite(),
    )
    falls = (
        rows.sort("layer")
        .select("layer", "n", "delta_p", "ci_low", "ci_high")
        .iter_rows()
    )
    return {
        layer: Estimate(-value, -high, -low, n, "interval of one layer")
        for layer, n, value, low, high in falls
    }


def _widened(falls: dict[int, Estimate]) -> dict[int, Estimate]:
    """The same with intervals that hold for all layers at once."""
    outside = (1 - LEVEL) / 2
    wider = NormalDist().inv_cdf(
        1 - outside / max(1, len(falls))
    ) / NormalDist().inv_cdf(1 - outside)
    method = "intervals of all layers widened to hold together (Bonferroni)"

    def widen(fall: Estimate) -> Estimate:
        low, high = (
            fall.value + wider * (end - fall.value)
            for end in (fall.ci_low, fall.ci_high)
        )
        return Estimate(fall.value, low, high, fall.n, method)

    return {layer: widen(fall) for layer, fall in falls.items()}


def _beyond_quarter(random: Estimate, knockout: Estimate) -> Estimate:
    """By how much a random cut does more than a quarter of the knockout, either way.

    The ends are combined as if the two were independent. They rest on the same items; where they rise and fall
    together, their difference is more certain than that.
    """
    low, high = random.value - random.ci_low, random.ci_high - random.value
    if random.value < 0:
        low, high = high, low
    ratio = verdicts.SMALL_RATIO
    value = abs(random.value) - ratio * knockout.value
    down = math.hypot(low, ratio * (knockout.ci_high - knockout.value))
    up = math.hypot(high, ratio * (knockout.value - knockout.ci_low))
    return Estimate(
        value,
        value - down,
        value + up,
        min(random.n, knockout.n),
        "ends combined as independent",
    )


@_check(
    "ΔP with nothing hidden",
    f"with nothing hidden {{fewer|more}} than {number(100 * verdicts.NOOP_FLIPS, 0)}% of the verdicts flip",
    "share",
    standing="control",
    of_groups=True,
)
def noop(subject: Subject) -> Measured:
    """How many verdicts flip by noise alone."""
    rate = verdicts.with_zero_bound(subject.summary("flip_rate", "none"))
    if rate is None:
        return Measured()
    return Measured(
        rate, f"{percent(rate)} of {rate.n} items", below(rate, verdicts.NOOP_FLIPS)
    )


# The curves along the depth: what Q-Anchored does, and whether A-Anchored is flat


@_of_curve(
    "Flat, A-Anchored",
    f"the A-Anchored curve {{stays|does not stay}} within ±{number(verdicts.STAYS_FLAT, 0)} points of zero at every "
    "layer",
    group=A_ANCHORED,
)
def a_flat(subject: Subject) -> Measured:
    """The farthest from zero."""
    if (curve := sampled_curve(subject.findings, subject.dataset, A_ANCHORED)) is None:
        return Measured()
    farthest = shape.range_within(curve)
    return Measured(
        farthest, f"farthest: {points(farthest)}", below(farthest, verdicts.STAYS_FLAT)
    )


@_of_curve(
    "Place, Q-Anchored",
    "the Q-Anchored curve is lowest {in|outside} the middle third of the depth",
    unit="share of the depth",
    group=Q_ANCHORED,
)
def trough_place(subject: Subject) -> Measured:
    """Where it is lowest."""
    if (curve := sampled_curve(subject.findings, subject.dataset, Q_ANCHORED)) is None:
        return Measured()
    lowest = shape.trough(curve)
    where = f"layer {estimate(lowest.layer, 0)}, {estimate(lowest.relative, 0, 100.0, '%')} of the depth"
    numbers = f"ΔP {points(lowest.depth)} at {where}"
    layer = int(lowest.layer.value) if math.isfinite(lowest.layer.value) else None
    return Measured(
        lowest.relative,
        numbers,
        between(lowest.relative, *verdicts.MIDDLE_THIRD),
        layer,
    )


@_of_curve(
    "Return, Q-Anchored",
    f"the Q-Anchored curve {{recovers|does not recover}} by more than {number(verdicts.MIN_RECOVERY, 0)} points by the "
    "last layer",
    group=Q_ANCHORED,
)
def recovery(subject: Subject) -> Measured:
    """How far it rises again."""
    if (curve := sampled_curve(subject.findings, subject.dataset, Q_ANCHORED)) is None:
        return Measured()
    rise = shape.recovery(curve)
    return Measured(
        rise,
        f"rise from the lowest layer to the end: {points(rise)}",
        above(rise, verdicts.MIN_RECOVERY),
    )
