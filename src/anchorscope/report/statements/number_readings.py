"""Readings of single numbers: what the groups lose at the reference layer, whom the rule sorts, what controls do, and
how good the probe itself is."""

from anchorscope.report.findings import auc_of, nested_auc
from anchorscope.report.looks import BASELINES
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.statements.reading_record import About, Reading
from anchorscope.report.verdicts import (
    LABEL_SORTING,
    NOOP_FLIPS,
    SMALL_RATIO,
    WORST_FIRST,
    above,
    below,
    difference,
    exact,
    size_ratio,
    with_zero_bound,
)
from anchorscope.report.wording import estimate, number, percent, points


def q_below_a(about: About) -> Reading:
    """Does the Q-Anchored group lose more than the other?"""
    q = about.summary("delta_p_reference", group=Q_ANCHORED)
    a = about.summary("delta_p_reference", group=A_ANCHORED)
    gap = difference(q, a)
    words = "Q-Anchored lies below A-Anchored at the reference layer"
    return about.reading("q_below_a", words, f"ΔP {points(q)} against {points(a)}", gap, below(gap, 0.0))


def random_is_small(about: About) -> Reading:
    """Do random cuts do much less?"""
    knockout = about.summary("delta_p_reference", group=Q_ANCHORED)
    matched = about.summary("delta_p_matched", "random", Q_ANCHORED)
    random = matched or about.summary("delta_p_reference", "random", Q_ANCHORED)
    ratio = size_ratio(random, knockout)
    words = f"cutting random tokens moves the Q-Anchored group by less than {SMALL_RATIO:.0%} of the knockout's effect"
    numbers = f"ΔP {points(random)} against {points(knockout)}, ratio {estimate(ratio)}"
    verdict = below(ratio, SMALL_RATIO)
    return about.reading("random_small", words.replace("%", " %"), numbers, ratio, verdict, unit="ratio",
                         standing="control")  # fmt: skip


def noop_changes_nothing(about: About) -> Reading:
    """Does cutting nothing change nothing?"""
    rate = with_zero_bound(about.summary("flip_rate", "none"))
    words = f"running the same path with nothing cut flips fewer than {number(100 * NOOP_FLIPS, 0)} % of the verdicts"
    items = f" of {rate.n} items" if rate else ""
    return about.reading("noop", words, f"{percent(rate)}{items}", rate, below(rate, NOOP_FLIPS), unit="share",
                         standing="control")  # fmt: skip


def sorts_by_label(about: About) -> Reading:
    """Are the groups the true and the false answers under another name?"""
    q = about.summary("true_share", group=Q_ANCHORED)
    a = about.summary("true_share", group=A_ANCHORED)
    gap = difference(q, a)
    words = "the rule mostly sorts items by their label"
    numbers = f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored"
    return about.reading("sorts_by_label", words, numbers, gap, above(gap, LABEL_SORTING), unit="difference of shares")


def towards_false(about: About) -> Reading:
    """Does the cut move all items one way?"""
    before, after = about.summary("mean_probability_before"), about.summary("mean_probability_after")
    change = difference(after, before)
    words = 'the knockout moves the probe towards "false"'
    numbers = f'mean probability of "truthful": {estimate(before)} before, {estimate(after)} after'
    return about.reading("towards_false", words, numbers, change, below(change, 0.0), unit="probability")


def fewer_flips_than_shuffled(about: About) -> Reading:
    """Does some of the signal survive? Shuffled scores carry none at all."""
    share = about.summary("group_share", group=Q_ANCHORED)
    null = exact(about.summary("null_share", group=Q_ANCHORED))
    gap = difference(share, null)
    words = "fewer items are Q-Anchored than if the scores after the cut were shuffled among the items"
    numbers = f"{percent(share)} against {percent(null)}"
    return about.reading("share_below_null", words, numbers, gap, below(gap, 0.0), unit="difference of shares")


def beats_baselines(about: About) -> Reading:
    """Does the probe beat every baseline, in the same draws? Where one is not known, that it does cannot be said.

    Relations are not known of every dataset; there the words stand for them.
    """
    findings, dataset = about.findings, about.dataset or ""
    found = {kind: auc_of(findings, dataset, kind, None) for kind in BASELINES}
    known = {kind: value for kind, value in found.items() if value is not None}
    lacking = [BASELINES[kind] for kind in BASELINES if kind not in known and kind != "relation-only"]
    best = max(known, key=lambda kind: known[kind].value, default=None)
    gains = {kind: about.summary("auc_difference", "clean", kind) for kind in known}
    verdicts = {above(gain, 0.0) for gain in gains.values()} or {"undecided"}
    verdict = next(one for one in WORST_FIRST if one in verdicts)
    if lacking and verdict == "holds":
        verdict = "undecided"
    words = "the probe tells true from false better than every baseline"
    gain = gains[best] if best else None
    numbers = f"AUC {estimate(nested_auc(findings, dataset))}"
    if best:
        numbers += f"; best baseline, {BASELINES[best]}: {estimate(known[best])}, difference {estimate(gain)}"
    numbers += f"; not known: {', '.join(lacking)}" if lacking else ""
    return about.reading("beats_baselines", words, numbers, gain, verdict, unit="AUC")


def adds_to_confidence(about: About) -> Reading:
    """Does the probe know something that the model's own confidence does not?"""
    findings, dataset = about.findings, about.dataset or ""
    gain = about.summary("auc_beyond_confidence", "clean", "nested")
    both = nested_auc(findings, dataset, kind="nested+confidence")
    alone = auc_of(findings, dataset, "confidence-mean", None)
    words = "the probe adds to the model's own confidence"
    numbers = f"AUC of both {estimate(both)}, of confidence alone {estimate(alone)}, difference {estimate(gain)}"
    return about.reading("adds_to_confidence", words, numbers, gain, above(gain, 0.0), unit="AUC")


def signal_survives(about: About) -> Reading:
    """Can a probe trained on the cut states still tell, better than one that learned permuted labels?"""
    refit = nested_auc(about.findings, about.dataset or "", "knockout", kind="nested-refit")
    chance = about.summary("auc_permuted", group="refit")
    beyond = about.summary("auc_beyond_permuted", group="refit")
    words = "with the question's key words cut, a probe trained anew still tells true from false"
    numbers = f"AUC {estimate(refit)}; with permuted labels {estimate(chance)}"
    return about.reading("signal_survives", words, numbers, beyond, above(beyond, 0.0), unit="AUC")
