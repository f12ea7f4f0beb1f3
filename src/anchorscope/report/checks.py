"""Every check of a run, in the order in which the page shows them, and `read`, which applies them.

Each check is a function that measures, below its words: topic, clause, unit, standing. A clause holds both of its
forms: "the probe {adds|adds next to nothing} to …". The parts of the evidence come first: two tested questions answer
what was asked, controls say whether to trust it. Then the probe and who is sorted into the groups, and the curves of
the paper's rule and of its corrected one. Thresholds are in `verdicts.py`.

Controls of the parts are asked over the same band of layers as the parts, those of ΔP at every layer, with intervals
that hold for all layers at once: one that fails at one layer with 95 % confidence has failed, and the layers are named.
Numbers of whole curves come from their bootstrap draws (`stats/curves.py`), so that choosing the most striking layer
afterwards costs width.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import polars as pl

from anchorscope.report import shares, verdicts
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, auc_of, nested_auc, summary_of
from anchorscope.report.palette import A_ANCHORED, BASELINES, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.reading import EVIDENCE, Reading, Standing
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.verdicts import Verdict, above, below, between, difference, gained, size_ratio
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
from anchorscope.stats.curves import FEWEST_GROUPS, SampledCurve
from anchorscope.stats.estimate import LEVEL, Estimate, holm

Rules = tuple[str | None, ...]
TWO_RULES = ("plain", "corrected")
"""The paper's rule, and the one without the common shift: their curves are read one by one."""


@dataclass(frozen=True)
class Subject:
    """What a check is applied to: a dataset under one assignment rule, or where no rule matters."""

    findings: Findings
    dataset: str
    assignment: str | None
    curves: RunCurves
    """The chart's curves under this rule."""

    def summary(
        self, quantity: str, intervention: str | None = "knockout", group: str | None = None
    ) -> Estimate | None:
        """A quantity of the summary under this rule; without an interval where it rests on too few items."""
        value = summary_of(
            self.findings, self.dataset, quantity, assignment=self.assignment, intervention=intervention, group=group
        )
        if value is not None and 0 < value.n < FEWEST_GROUPS:  # a bootstrap of so few has no honest interval
            return replace(value, ci_low=math.nan, ci_high=math.nan)
        return value

    def share(self, intervention: str = "knockout", part: str = shares.NEEDS_QUESTION) -> Estimate | None:
        """A share of the evidence over the band."""
        return shares.share_at(self.findings, self.dataset, intervention, part)

    @property
    def layer(self) -> int | None:
        """The middle layer of the band."""
        return shares.share_layer(self.findings, self.dataset)

    @property
    def name(self) -> str:
        """How a sentence about it begins."""
        rule = f", {RULES[self.assignment]}" if self.assignment else ""
        return display_name(self.dataset) + rule


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
    p_corrected: float | None = None
    failing: tuple[int, ...] | None = None
    doubtful: tuple[int, ...] | None = None


Measure = Callable[[Subject], Measured | None]
"""None where the check does not apply."""


@dataclass(frozen=True)
class Check:
    """One claim, its measure and its sentences."""

    claim: str
    """Its name in observations.json."""
    topic: str
    clause: str
    """The claim, with both forms of what differs: "the curve {recovers|does not recover}"."""
    measure: Measure
    unit: str = "points"
    standing: Standing = "description"
    rules: Rules = (None,)
    """The assignment rules under which it is asked; None where no rule matters."""
    built_in: Rules = ()
    """Those that make it true by themselves."""
    key: Rules = ()
    """Those under which a reader wants it first."""
    scope: str = "dataset"
    group: str | None = None

    def sentence(self, verdict: Verdict | None) -> str:
        """What may be said, without numbers; without a verdict the claim alone."""
        words = {"inconclusive": "it is unclear whether ", "not measured": "not measured: "}.get(verdict or "", "")
        return capitalised(words + _form(self.clause, 1 if verdict == "no" else 0))

    def reading(self, subject: Subject, measured: Measured) -> Reading:
        """The check applied to a run."""
        built_in = subject.assignment in self.built_in
        number, p = measured.estimate, measured.p_corrected
        known = number is not None and not math.isnan(number.value)
        judged: Verdict = measured.verdict if number is not None else "not measured"
        if self.standing == "tested" and number is not None:
            judged = verdicts.above_zero(number, math.nan if p is None else p)
        verdict = None if built_in else judged
        values = vars(measured) | {
            "numbers": measured.numbers if known else MISSING,
            "layer": measured.layer if known else None,
            "verdict": verdict,
        }
        return Reading(
            id=":".join(filter(None, (subject.dataset, subject.assignment, self.claim))),
            claim=self.claim,
            topic=self.topic,
            statement=_form(self.clause),
            sentence=self.sentence(verdict),
            unit=self.unit,
            subject=subject.name,
            model=subject.findings.model,
            dataset=subject.dataset,
            site=subject.findings.site,
            position=subject.findings.position,
            assignment=subject.assignment,
            group=self.group,
            scope=self.scope,
            standing="by construction" if built_in else self.standing,
            key=subject.assignment in self.key,
            **values,
        )


def _form(clause: str, place: int = 0) -> str:
    """The clause as it is said where it holds (0), or where it does not (1)."""
    return re.sub(r"\{(.*?)\|(.*?)\}", lambda forms: forms.group(place + 1), clause)


SHARES: list[Check] = []
"""Checks of the parts of the evidence: of no rule, and all of them wanted first."""
CHECKS: list[Check] = []
"""All other checks of a dataset."""


def _check(
    topic: str, clause: str, unit: str, into: list[Check] = CHECKS, **options: Any
) -> Callable[[Measure], Measure]:
    """Registers a check; the function's name is the claim's, and the other options are those of `Check`."""

    def register(measure: Measure) -> Measure:
        into.append(Check(measure.__name__, topic, clause, measure, unit, **options))
        return measure

    return register


_control = partial(_check, unit="ratio", into=SHARES, standing="control", key=(None,))
_tested = partial(_check, unit=EVIDENCE, into=SHARES, standing="tested", key=(None,))
_of_probe = partial(_check, unit="AUC", key=(None,))


def read(findings: Findings) -> list[Reading]:
    """All readings of a run, dataset by dataset."""
    checks = [*(SHARES if shares.has_shares(findings) else ()), *CHECKS]
    curves = {rule: RunCurves(findings, rule or "") for rule in (None, *RULES)}
    subjects = [Subject(findings, dataset, rule, curves[rule]) for dataset in findings.datasets for rule in curves]
    measured = [result for subject in subjects for result in _measure(subject, checks)]
    return [check.reading(subject, result) for check, subject, result in _correct_p_values(measured)]


Result = tuple[Check, Subject, Measured]


def _measure(subject: Subject, checks: Sequence[Check]) -> Iterator[Result]:
    for check in checks:
        measured = check.measure(subject) if subject.assignment in check.rules else None
        if measured is not None:
            yield check, subject, measured


def _correct_p_values(results: Sequence[Result]) -> list[Result]:
    """The p-values of all tested checks, corrected together (Holm) and added to their numbers."""
    tested = [measured.p_value for check, _, measured in results if check.standing == "tested"]
    corrected = iter(holm([math.nan if p is None else p for p in tested]))
    done: list[Result] = []
    for check, subject, measured in results:
        p = next(corrected) if check.standing == "tested" else None
        if p is not None and measured.estimate is not None:
            words = f"p {_p_words(measured.p_value)}, corrected {_p_words(p)}; n = {measured.estimate.n}"
            measured = replace(measured, p_corrected=p, numbers=f"{measured.numbers}; {words}")
        done.append((check, subject, measured))
    return done


def _p_words(p: float | None) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"


# The parts of the evidence, over the band of layers: two tested questions, the controls, and probes that see less


@_tested("The match", "{part|hardly any} of the probe's evidence needs question and answer together")
def needs_both(subject: Subject) -> Measured:
    """Tested by its interval, which is a normal one."""
    share, dataset = subject.share(part=shares.TOGETHER), subject.dataset
    if share is None or shares.why_silent(subject.findings, dataset) is not None:
        return Measured()
    numbers = f"{estimate(share)} over layers {shares.band_layers(subject.findings, dataset)}"
    return Measured(share, numbers, layer=subject.layer, p_value=verdicts.p_from_interval(share))


@_tested("More than any words", "the key words carry {more|no more} of it than random words do")
def share_beyond_random(subject: Subject) -> Measured:
    """The difference of the two shares, as the run tested it."""
    result = shares.result_of(subject.findings, subject.dataset, "above_random", shares.NEEDS_QUESTION)
    if result is None or shares.why_silent(subject.findings, subject.dataset) is not None:
        return Measured()
    numbers = f"{estimate(result.estimate)} more; random words alone {estimate(subject.share('random'))}"
    return Measured(result.estimate, numbers, layer=subject.layer, p_value=result.p_value)


def _beside_knockout(subject: Subject, control: Estimate | None) -> Measured | None:
    """What a control takes, over what the key words take."""
    if control is None:
        return None
    ratio = size_ratio(control, subject.share())
    numbers = f"needs {estimate(control)}, ratio {estimate(ratio)}"
    return Measured(ratio, numbers, below(ratio, verdicts.SMALL_RATIO), subject.layer)


@_control(
    "Random words", "{less|more} than a quarter as much of the evidence needs random words as needs the key words"
)
def share_random_small(subject: Subject) -> Measured | None:
    """As many random words, cut in the same way."""
    return _beside_knockout(subject, subject.share("random"))


@_control(
    "Displacement", "the random cut moves the states {at least|less than} four fifths as far as the key words' cut"
)
def displacement_matched(subject: Subject) -> Measured | None:
    """How far the random cut moves the states, over how far the knockout does; medians, without an interval."""
    results = shares.results_of(subject.findings, subject.dataset, "displacement")
    moved = {result.intervention: result.estimate for result in results}
    if not {"knockout", "random"} <= set(moved):
        return None
    ratio = moved["random"].value / moved["knockout"].value
    measured = Estimate(ratio, math.nan, math.nan, moved["random"].n, "ratio of medians")
    numbers = f"key words {number(moved['knockout'].value, 2)}, random words {number(moved['random'].value, 2)}"
    return Measured(measured, numbers, "yes" if ratio >= verdicts.MATCHED_DISPLACEMENT else "no", subject.layer)


_LACKS = "{holds nearly all of the evidence|lacks more than a quarter as much of the evidence as the cut state}"


@_control("Another site, nothing cut", f"the clean state of another site {_LACKS}")
def share_floor_small(subject: Subject) -> Measured | None:
    """What is not in the clean state of another site, though nothing was cut."""
    result = shares.result_of(subject.findings, subject.dataset, "floor")
    return _beside_knockout(subject, result.estimate if result else None)


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


@_control("Random weights", "random weights of the same shape have {less|more} than a quarter of the share")
def share_random_weights(subject: Subject) -> Measured | None:
    """The same items through random weights, where that was run: what they give is in the words alone."""
    return _beside_knockout(subject, subject.share("random-weights"))


@_control("Paraphrased question, nothing cut", f"the clean state of a paraphrased question {_LACKS}")
def share_paraphrase_small(subject: Subject) -> Measured | None:
    """What is not in the clean state of the question in another sentence, where that was run."""
    return _beside_knockout(subject, subject.share("paraphrase"))


@_control(
    "Key words of another question",
    "another question's key words take {at least|less than} half as much of the evidence as hiding the key words",
)
def share_resample_holds(subject: Subject) -> Measured | None:
    """What another item's key words take, where they were put in: the text has no hole."""
    measured = _beside_knockout(subject, subject.share("resample"))
    return measured and replace(measured, verdict=above(measured.estimate, verdicts.LEAST_RESAMPLED))


@_of_probe(
    "Probes that see less",
    "the probe reads truth {better than every|no better than the best} probe that sees less (question only, answer "
    "only, words)",
    into=SHARES,
)
def auc_above_nulls(subject: Subject) -> Measured | None:
    """The probe beside the best probe that sees less; better than all of them needs all of them."""
    readers = shares.truth_readers(subject.findings, subject.dataset)
    probe = readers.pop(shares.PROBE, None)
    if probe is None or not readers:
        return None
    best = max(readers, key=lambda name: readers[name].value)
    gains = {name: difference(probe, area) for name, area in readers.items()}
    wanted = ("question only", "answer only", "words")
    lacking = [name for name in wanted if not any(reader.startswith(name) for reader in readers)]
    unknown = f"; not known: {', '.join(lacking)}" if lacking else ""
    numbers = f"AUC {estimate(probe)}; best of the others, {best}: {estimate(readers[best])}{unknown}"
    return Measured(gains[best], numbers, _beats_all(list(gains.values()), lacking))


def _beats_all(gains: Sequence[Estimate | None], lacking: Sequence[str]) -> Verdict:
    """Whether there is a gain over each of these; where one is missing, that can't be said."""
    each = {gained(gain) for gain in gains} or {"inconclusive"}
    worst = next(verdict for verdict in verdicts.WORST_FIRST if verdict in each)
    return "inconclusive" if lacking and worst == "yes" else worst


# The groups of every rule, the probe, and the controls of ΔP

_PLAIN = ("plain",)
_caused = partial(_check, rules=tuple(RULES), built_in=tuple(RULES))
_curve_control = partial(_check, standing="control", key=_PLAIN)


@_caused("Q below A", "Q-Anchored {is|is not} below A-Anchored at the reference layer", "points")
def q_below_a(subject: Subject) -> Measured:
    """What each group loses at each fold's own reference layer."""
    q, a = (subject.summary("delta_p_reference", group=group) for group in GROUPS)
    gap = difference(q, a)
    return Measured(gap, f"ΔP {points(q)} against {points(a)}, every fold at its own l*", below(gap, 0.0))


@_check(
    "Who is in the groups",
    "the rule {mostly sorts|does not simply sort} answers into true and false ones",
    "difference of shares",
    rules=TWO_RULES,
    key=_PLAIN,
    built_in=("corrected",),
)
def sorts_by_label(subject: Subject) -> Measured:
    """How far the groups differ in true answers."""
    q, a = (subject.summary("true_share", group=group) for group in GROUPS)
    gap = difference(q, a)
    if gap is not None and gap.value < 0:  # the other way round is sorting by label as well
        gap = Estimate(-gap.value, -gap.ci_high, -gap.ci_low, gap.n, gap.method)
    numbers = f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored"
    return Measured(gap, numbers, above(gap, verdicts.LABEL_SORTING))


@_check("Common shift", 'the cut {moves|does not move} the probe towards "false"', "probability", rules=_PLAIN)
def towards_false(subject: Subject) -> Measured:
    """How far the mean probability of "true" changes."""
    before, after = (subject.summary(f"mean_probability_{when}") for when in ("before", "after"))
    change = difference(after, before)
    numbers = f'mean probability of "true": {estimate(before)} before, {estimate(after)} after'
    return Measured(change, numbers, below(change, 0.0))


@_check(
    "Flips",
    "{fewer|no fewer} items are Q-Anchored than if the scores after the cut were shuffled among the items",
    "difference of shares",
    rules=("corrected",),
)
def share_below_null(subject: Subject) -> Measured:
    """Shuffled scores carry no signal at all."""
    share, null = (subject.summary(name, group=Q_ANCHORED) for name in ("group_share", "null_share"))
    gap = difference(share, verdicts.exact(null))
    return Measured(gap, f"{percent(share)} against {percent(verdicts.exact(null))}", below(gap, 0.0))


@_of_probe("Probe", "the probe tells true from false {better than every|no better than the best} simple baseline")
def beats_baselines(subject: Subject) -> Measured:
    """The probe beside every baseline, in the same draws. Relations are not known of every dataset."""
    findings, dataset = subject.findings, subject.dataset
    areas = {kind: area for kind in BASELINES if (area := auc_of(findings, dataset, kind)) is not None}
    lacking = [BASELINES[kind] for kind in BASELINES if kind not in areas and kind != "relation-only"]
    gains = {kind: subject.summary("auc_difference", "clean", kind) for kind in areas}
    numbers, gain = f"AUC {estimate(nested_auc(findings, dataset))}", None
    if areas:
        best = max(areas, key=lambda kind: areas[kind].value)
        gain = gains[best]
        numbers += f"; best baseline, {BASELINES[best]}: {estimate(areas[best])}, difference {estimate(gain)}"
    numbers += f"; not measured: {', '.join(lacking)}" if lacking else ""
    return Measured(gain, numbers, _beats_all(list(gains.values()), lacking))


@_of_probe("Beside confidence", "the probe adds {to|next to nothing to} the model's own confidence")
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
    refit = nested_auc(subject.findings, subject.dataset, "knockout", kind="nested-refit")
    gain, chance = (subject.summary(name, group="refit") for name in ("auc_beyond_permuted", "auc_permuted"))
    return Measured(gain, f"AUC {estimate(refit)}; with permuted labels {estimate(chance)}", gained(gain))


@_curve_control(
    "ΔP with random words hidden",
    "random words move the Q-Anchored line {less|more} than a quarter as far as the key words",
    "ratio",
    rules=TWO_RULES,
)
def random_small(subject: Subject) -> Measured:
    """Asked wherever the key words lower the line visibly, in either direction.

    A layer fails by an interval for all layers, since the worst one is picked; it passes by its own interval, since
    every layer has to.
    """
    own = {cut: _falls(subject, cut) for cut in ("knockout", "random")}
    joint = {cut: _widened(falls) for cut, falls in own.items()}
    needed = tuple(layer for layer, fall in joint["knockout"].items() if fall.ci_low > verdicts.SEEN_BY_EYE)
    pairs = {layer: (joint["random"][layer], joint["knockout"][layer]) for layer in needed if layer in own["random"]}
    ratios = {layer: ratio for layer, pair in pairs.items() if (ratio := size_ratio(*pair)) is not None}
    if not ratios:
        return Measured()
    worst = max(ratios, key=lambda layer: ratios[layer].value)
    over = tuple(layer for layer, ratio in ratios.items() if ratio.value >= verdicts.SMALL_RATIO)
    failing = tuple(layer for layer, pair in pairs.items() if _beyond_quarter(*pair).ci_low > 0)
    passed = [layer for layer in pairs if _beyond_quarter(own["random"][layer], own["knockout"][layer]).ci_high < 0]
    unsure = tuple(layer for layer in needed if layer not in (*failing, *passed))
    named = {"above": over, "significantly above": failing, "inconclusive": unsure}
    where = "".join(f"; {word} at {layer_names(layers)}" for word, layers in named.items() if layers)
    numbers = f"highest ratio {estimate(ratios[worst])} at layer {worst}{where}"
    doubtful = tuple(layer for layer in over if layer not in failing)
    verdict: Verdict = "no" if failing else "inconclusive" if unsure else "yes"
    return Measured(ratios[worst], numbers, verdict, worst, failing=failing, doubtful=doubtful)


def _falls(subject: Subject, intervention: str) -> dict[int, Estimate]:
    """How much the Q-Anchored line falls at every layer that has an honest interval."""
    findings, rule = subject.findings, subject.assignment or ""
    rows = findings.drawn_curves(subject.dataset, rule, Q_ANCHORED, intervention)
    rows = rows.filter(pl.col("n_groups") >= FEWEST_GROUPS, pl.col("ci_low").is_finite(), pl.col("ci_high").is_finite())
    falls = rows.sort("layer").select("layer", "n", "delta_p", "ci_low", "ci_high").iter_rows()
    return {layer: Estimate(-value, -high, -low, n, "interval of one layer") for layer, n, value, low, high in falls}


def _widened(falls: dict[int, Estimate]) -> dict[int, Estimate]:
    """The same with intervals that hold for all layers at once."""
    outside = (1 - LEVEL) / 2
    wider = NormalDist().inv_cdf(1 - outside / max(1, len(falls))) / NormalDist().inv_cdf(1 - outside)
    method = "intervals of all layers widened to hold together (Bonferroni)"

    def widen(fall: Estimate) -> Estimate:
        low, high = (fall.value + wider * (end - fall.value) for end in (fall.ci_low, fall.ci_high))
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
    return Estimate(value, value - down, value + up, min(random.n, knockout.n), "ends combined as independent")


@_curve_control(
    "ΔP with nothing hidden",
    f"with nothing hidden {{fewer|more}} than {number(100 * verdicts.NOOP_FLIPS, 0)}% of the verdicts flip",
    "share",
    rules=_PLAIN,
)
def noop(subject: Subject) -> Measured:
    """How many verdicts flip by noise alone."""
    rate = verdicts.with_zero_bound(subject.summary("flip_rate", "none"))
    if rate is None:
        return Measured()
    return Measured(rate, f"{percent(rate)} of {rate.n} items", below(rate, verdicts.NOOP_FLIPS))


@_caused(
    "Apart",
    f"{{from some layer on|at no layer}} Q-Anchored stays over {number(shape.APART, 0)} point below A-Anchored",
    "layer",
)
def separation(subject: Subject) -> Measured:
    """The first layer from which on the two lines stay apart."""
    q, a = (subject.curves.curve(subject.dataset, group) for group in GROUPS)
    if not (q and a):
        return Measured()
    layer = shape.separation(q, a)
    words = _at_layer(layer) if math.isinf(layer.value) else f"from {_at_layer(layer)} on"
    return Measured(layer, words, "yes" if verdicts.has_interval(layer) else "inconclusive", _whole(layer))


# The curves along the depth: what Q-Anchored does, and whether A-Anchored is flat


def _whole(layer: Estimate) -> int | None:
    return int(layer.value) if math.isfinite(layer.value) else None


def _at_layer(layer: Estimate) -> str:
    """layer 8 [7, 12]; an end at infinity is "none": at no layer."""
    words = estimate(layer, 0).replace("−∞", "none").replace("∞", "none")
    return f"layer {words}" if math.isfinite(layer.value) else words.replace("none", "at no layer", 1)


CurveMeasure = Callable[[SampledCurve], Measured]


def _curve_check(
    topic: str, does: str, unit: str = "points", group: str = Q_ANCHORED, **options: Any
) -> Callable[[CurveMeasure], CurveMeasure]:
    """Registers what a group's curve does."""

    def register(measure: CurveMeasure) -> CurveMeasure:
        def measured(subject: Subject) -> Measured:
            curve = subject.curves.curve(subject.dataset, group)
            return measure(curve) if curve else Measured()

        about = options | {"rules": TWO_RULES, "scope": "curve", "group": group}
        CHECKS.append(
            Check(measure.__name__, f"{topic}, {group}", f"the {group} curve {does}", measured, unit, **about)
        )
        return measure

    return register


@_curve_check("Start", f"{{starts|does not start}} within ±{number(verdicts.NEAR_ZERO, 0)} points of zero")
def first_layer(curve: SampledCurve) -> Measured:
    """ΔP at layer 0."""
    first, near = shape.first(curve), verdicts.NEAR_ZERO
    return Measured(first, f"ΔP {points(first)} at layer 0", between(first, -near, near), 0)


@_curve_check(
    "Flat",
    f"{{stays|does not stay}} within ±{number(verdicts.STAYS_FLAT, 0)} points of zero at every layer",
    group=A_ANCHORED,
    key=_PLAIN,
)
def a_flat(curve: SampledCurve) -> Measured:
    """The farthest from zero."""
    farthest = shape.range_within(curve)
    return Measured(farthest, f"farthest: {points(farthest)}", below(farthest, verdicts.STAYS_FLAT))


@_curve_check(
    "Fall", f"{{gets|never gets}} more than {number(verdicts.MIN_TROUGH, 0)} points below zero", built_in=TWO_RULES
)
def trough(curve: SampledCurve) -> Measured:
    """The lowest ΔP. Items called Q-Anchored because they fall do fall: that has no verdict."""
    lowest = shape.trough(curve)
    layer, numbers = _whole(lowest.layer), f"ΔP {points(lowest.depth)}, lowest at layer {_whole(lowest.layer)}"
    return Measured(lowest.depth, numbers, below(lowest.depth, -verdicts.MIN_TROUGH), layer)


@_curve_check("Place", "is lowest {in|outside} the middle third of the depth", "share of the depth", key=_PLAIN)
def trough_place(curve: SampledCurve) -> Measured:
    """Where it is lowest."""
    lowest = shape.trough(curve)
    numbers = f"{_at_layer(lowest.layer)}, {estimate(lowest.relative, 0, 100.0, '%')} of the depth"
    return Measured(lowest.relative, numbers, between(lowest.relative, *verdicts.MIDDLE_THIRD), _whole(lowest.layer))


@_curve_check(
    "Return",
    f"{{recovers|does not recover}} by more than {number(verdicts.MIN_RECOVERY, 0)} points by the last layer",
    key=_PLAIN,
)
def recovery(curve: SampledCurve) -> Measured:
    """How far it rises again."""
    rise = shape.recovery(curve)
    return Measured(rise, f"rise from the lowest layer to the end: {points(rise)}", above(rise, verdicts.MIN_RECOVERY))


@_curve_check("End", "{is still below|ends above} zero at the last layer")
def last_layer(curve: SampledCurve) -> Measured:
    """ΔP at the last layer."""
    last = shape.last(curve)
    return Measured(last, f"ΔP {points(last)}", below(last, 0.0), curve.n_layers - 1)
