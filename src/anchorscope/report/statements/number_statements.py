"""Checks of single numbers: whom a rule sorts, how the cut moves the probe, and how good the probe is."""

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import auc_of, nested_auc
from anchorscope.report.looks import BASELINES
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.reading import Check, Measured, Subject, over, under
from anchorscope.report.verdicts import LABEL_SORTING, WORST_FIRST, Verdict, difference, exact, gained
from anchorscope.report.wording import estimate, percent, points
from anchorscope.stats.estimate import Estimate


def _below(subject: Subject) -> Measured:
    """What each group loses at each fold's own reference layer."""
    q, a = (subject.summary("delta_p_reference", group=group) for group in (Q_ANCHORED, A_ANCHORED))
    return Measured(difference(q, a), f"ΔP {points(q)} against {points(a)}, every fold at its own l*")


def _label(subject: Subject) -> Measured:
    q, a = (subject.summary("true_share", group=group) for group in (Q_ANCHORED, A_ANCHORED))
    gap = difference(q, a)
    if gap is not None and gap.value < 0:  # the other way round is sorting by label as well
        gap = Estimate(-gap.value, -gap.ci_high, -gap.ci_low, gap.n, gap.method)
    return Measured(gap, f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored")


def _towards_false(subject: Subject) -> Measured:
    before, after = subject.summary("mean_probability_before"), subject.summary("mean_probability_after")
    numbers = f'mean probability of "true": {estimate(before)} before, {estimate(after)} after'
    return Measured(difference(after, before), numbers)


def _shuffled(subject: Subject) -> Measured:
    """Shuffled scores carry no signal at all."""
    share, null = subject.summary("group_share", group=Q_ANCHORED), subject.summary("null_share", group=Q_ANCHORED)
    return Measured(difference(share, exact(null)), f"{percent(share)} against {percent(exact(null))}")


def _baselines(subject: Subject) -> Measured:
    """The probe beside every baseline, in the same draws. Where one is not known, that it is better cannot be said.

    Relations are not known of every dataset; there the words stand for them.
    """
    findings, dataset = subject.findings, subject.dataset or ""
    found = {kind: auc_of(findings, dataset, kind, None) for kind in BASELINES}
    known = {kind: value for kind, value in found.items() if value is not None}
    lacking = [BASELINES[kind] for kind in BASELINES if kind not in known and kind != "relation-only"]
    best = max(known, key=lambda kind: known[kind].value, default=None)
    gains = {kind: subject.summary("auc_difference", "clean", kind) for kind in known}
    verdicts = {gained(gain) for gain in gains.values()} or {"inconclusive"}
    verdict = next(one for one in WORST_FIRST if one in verdicts)
    if lacking and verdict == "yes":
        verdict = "inconclusive"
    gain = gains[best] if best else None
    numbers = f"AUC {estimate(nested_auc(findings, dataset))}"
    if best:
        numbers += f"; best baseline, {BASELINES[best]}: {estimate(known[best])}, difference {estimate(gain)}"
    numbers += f"; not measured: {', '.join(lacking)}" if lacking else ""
    return Measured(gain, numbers, verdict=verdict)


def _confidence(subject: Subject) -> Measured:
    findings, dataset = subject.findings, subject.dataset or ""
    gain = subject.summary("auc_beyond_confidence", "clean", "nested")
    both = nested_auc(findings, dataset, kind="nested+confidence")
    alone = auc_of(findings, dataset, "confidence-mean", None)
    numbers = f"AUC of both {estimate(both)}, of confidence alone {estimate(alone)}, difference {estimate(gain)}"
    return Measured(gain, numbers)


def _survives(subject: Subject) -> Measured:
    """A probe trained on the cut states beside one that learned permuted labels."""
    refit = nested_auc(subject.findings, subject.dataset or "", "knockout", kind="nested-refit")
    chance = subject.summary("auc_permuted", group="refit")
    return Measured(
        subject.summary("auc_beyond_permuted", group="refit"),
        f"AUC {estimate(refit)}; with permuted labels {estimate(chance)}",
    )


def _gains(found: Measured) -> Verdict:
    return gained(found.estimate)


NUMBERS = (
    Check(
        "q_below_a",
        "Q below A",
        "Q-Anchored is below A-Anchored at the reference layer",
        "Q-Anchored is not below A-Anchored at the reference layer",
        _below,
        under(0.0),
        rules=tuple(RULES),
        built_in=tuple(RULES),
    ),
    Check(
        "sorts_by_label",
        "Who is in the groups",
        "the rule mostly sorts answers into true and false ones",
        "The rule does not simply sort answers into true and false ones",
        _label,
        over(LABEL_SORTING),
        rules=("plain", "corrected"),
        built_in=("corrected",),
        key=("plain",),
        unit="difference of shares",
        holds="The rule is confounded: it mostly sorts answers into true and false ones",
    ),
    Check(
        "towards_false",
        "Common shift",
        'the cut moves the probe towards "false"',
        'The cut does not move the probe towards "false"',
        _towards_false,
        under(0.0),
        rules=("plain",),
        unit="probability",
    ),
    Check(
        "share_below_null",
        "Flips",
        "fewer items are Q-Anchored than if the scores after the cut were shuffled among the items",
        "No fewer items are Q-Anchored than with shuffled scores: the A-Anchored group may be chance",
        _shuffled,
        under(0.0),
        rules=("corrected",),
        unit="difference of shares",
    ),
    Check(
        "beats_baselines",
        "Probe",
        "the probe tells true from false better than every simple baseline",
        "The probe is no better than the best simple baseline",
        _baselines,
        unit="AUC",
        key=(None,),
    ),
    Check(
        "adds_to_confidence",
        "Beside confidence",
        "the probe adds to the model's own confidence",
        "The probe adds next to nothing to the model's own confidence",
        _confidence,
        _gains,
        unit="AUC",
        key=(None,),
    ),
    Check(
        "signal_survives",
        "What survives",
        "with the key words hidden, a probe trained again still tells true from false",
        "With the key words hidden, a probe trained again hardly does better than guessing",
        _survives,
        _gains,
        unit="AUC",
        key=(None,),
    ),
)
"""Each names the rules under which it is asked."""
