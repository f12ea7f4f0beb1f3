"""Statements about single numbers: whom a rule sorts, how the cut moves the probe, and how good the probe is."""

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import auc_of, nested_auc
from anchorscope.report.looks import BASELINES
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.statements.statement import About, Found, Statement, over, under
from anchorscope.report.verdicts import LABEL_SORTING, WORST_FIRST, Verdict, difference, exact, gained
from anchorscope.report.wording import estimate, percent, points
from anchorscope.stats.estimate import Estimate


def _below(about: About) -> Found:
    """What each group loses at each fold's own reference layer."""
    q, a = (about.summary("delta_p_reference", group=group) for group in (Q_ANCHORED, A_ANCHORED))
    return Found(difference(q, a), f"ΔP {points(q)} against {points(a)}, every fold at its own l*")


def _label(about: About) -> Found:
    q, a = (about.summary("true_share", group=group) for group in (Q_ANCHORED, A_ANCHORED))
    gap = difference(q, a)
    if gap is not None and gap.value < 0:  # the other way round is sorting by label as well
        gap = Estimate(-gap.value, -gap.ci_high, -gap.ci_low, gap.n, gap.method)
    return Found(gap, f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored")


def _towards_false(about: About) -> Found:
    before, after = about.summary("mean_probability_before"), about.summary("mean_probability_after")
    numbers = f'mean probability of "true": {estimate(before)} before, {estimate(after)} after'
    return Found(difference(after, before), numbers)


def _shuffled(about: About) -> Found:
    """Shuffled scores carry no signal at all."""
    share, null = about.summary("group_share", group=Q_ANCHORED), about.summary("null_share", group=Q_ANCHORED)
    return Found(difference(share, exact(null)), f"{percent(share)} against {percent(exact(null))}")


def _baselines(about: About) -> Found:
    """The probe beside every baseline, in the same draws. Where one is not known, that it is better cannot be said.

    Relations are not known of every dataset; there the words stand for them.
    """
    findings, dataset = about.findings, about.dataset or ""
    found = {kind: auc_of(findings, dataset, kind, None) for kind in BASELINES}
    known = {kind: value for kind, value in found.items() if value is not None}
    lacking = [BASELINES[kind] for kind in BASELINES if kind not in known and kind != "relation-only"]
    best = max(known, key=lambda kind: known[kind].value, default=None)
    gains = {kind: about.summary("auc_difference", "clean", kind) for kind in known}
    verdicts = {gained(gain) for gain in gains.values()} or {"undecided"}
    verdict = next(one for one in WORST_FIRST if one in verdicts)
    if lacking and verdict == "holds":
        verdict = "undecided"
    gain = gains[best] if best else None
    numbers = f"AUC {estimate(nested_auc(findings, dataset))}"
    if best:
        numbers += f"; best baseline, {BASELINES[best]}: {estimate(known[best])}, difference {estimate(gain)}"
    numbers += f"; not known: {', '.join(lacking)}" if lacking else ""
    return Found(gain, numbers, verdict=verdict)


def _confidence(about: About) -> Found:
    findings, dataset = about.findings, about.dataset or ""
    gain = about.summary("auc_beyond_confidence", "clean", "nested")
    both = nested_auc(findings, dataset, kind="nested+confidence")
    alone = auc_of(findings, dataset, "confidence-mean", None)
    numbers = f"AUC of both {estimate(both)}, of confidence alone {estimate(alone)}, difference {estimate(gain)}"
    return Found(gain, numbers)


def _survives(about: About) -> Found:
    """A probe trained on the cut states beside one that learned permuted labels."""
    refit = nested_auc(about.findings, about.dataset or "", "knockout", kind="nested-refit")
    chance = about.summary("auc_permuted", group="refit")
    return Found(
        about.summary("auc_beyond_permuted", group="refit"),
        f"AUC {estimate(refit)}; with permuted labels {estimate(chance)}",
    )


def _gains(found: Found) -> Verdict:
    return gained(found.estimate)


NUMBERS = (
    Statement(
        "q_below_a",
        "Q below A",
        "Q-Anchored lies below A-Anchored at the reference layer",
        "Q-Anchored does not lie below A-Anchored at the reference layer",
        _below,
        under(0.0),
        rules=tuple(RULES),
        built_in=tuple(RULES),
    ),
    Statement(
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
    Statement(
        "towards_false",
        "Common shift",
        'the cut moves the probe towards "false"',
        'The cut does not move the probe towards "false"',
        _towards_false,
        under(0.0),
        rules=("plain",),
        unit="probability",
    ),
    Statement(
        "share_below_null",
        "Flips",
        "fewer items are Q-Anchored than if the scores after the cut were shuffled among the items",
        "No fewer items are Q-Anchored than with shuffled scores: the A-Anchored group may be chance",
        _shuffled,
        under(0.0),
        rules=("corrected",),
        unit="difference of shares",
    ),
    Statement(
        "beats_baselines",
        "Probe",
        "the probe tells true from false better than every simple baseline",
        "The probe is no better than the best simple baseline",
        _baselines,
        unit="AUC",
        key=(None,),
    ),
    Statement(
        "adds_to_confidence",
        "Beside confidence",
        "the probe adds to the model's own confidence",
        "The probe adds next to nothing to the model's own confidence",
        _confidence,
        _gains,
        unit="AUC",
        key=(None,),
    ),
    Statement(
        "signal_survives",
        "What survives",
        "with the question's key words cut, a probe trained anew still tells true from false",
        "With the key words cut, a probe trained anew hardly does better than guessing",
        _survives,
        _gains,
        unit="AUC",
        key=(None,),
    ),
)
"""Under which rules they are asked stands with each."""
