"""The chart, read by arithmetic: a few claims per dataset, each with its number, its interval and a verdict.

People who look at the same ΔP chart disagree about what it shows. So the report computes its readings. Every claim is
put before the numbers are seen, compares one estimate with one named threshold, and never says more than the interval
allows (`verdicts.py`). The list is what `observations.json` holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anchorscope.report.findings import Findings
from anchorscope.report.lookup import auc_of, curve_of, headline_layer, summary_of
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.probe_auc import BASELINES
from anchorscope.report.verdicts import Verdict, above, below, difference, exact, size_ratio, with_zero_bound
from anchorscope.report.wording import MISSING, estimate, number, percent, points
from anchorscope.stats.estimate import Estimate

MIN_TROUGH = 5.0
"""Points. Random cuts alone move a curve by a few points; a shallower dip means nothing."""
MIN_RECOVERY = 5.0
"""Points. The lowest of many layers is low partly by chance, so a small rise after it is expected anyway."""
SMALL_RATIO = 0.25
"""A control that does a quarter of the knockout's effect would explain too much of it."""
NOOP_FLIPS = 0.03
"""About 120 items without a single flip are enough to stay under it; any knockout worth reading flips far more."""
LABEL_SORTING = 0.5
"""Difference of the true shares. Above it, guessing the label from the group is right at least three times in four."""
NO_SIGNAL_AUC = 0.5
"""Guessing."""

RULES = {
    "plain": "plain rule",
    "corrected": "corrected rule",
    "cross-fitted": "cross-fitted rule",
    "retained": "retained rule",
}


@dataclass(frozen=True)
class _About:
    """What a reading is about: one dataset under one assignment rule."""

    findings: Findings
    dataset: str
    assignment: str | None

    def summary(
        self, quantity: str, intervention: str | None = "knockout", group: str | None = None
    ) -> Estimate | None:
        """A quantity of the summary under this rule."""
        return summary_of(
            self.findings, self.dataset, quantity, assignment=self.assignment, intervention=intervention, group=group
        )

    def reading(self, claim: str, words: str, numbers: str, found: Estimate | None, verdict: Verdict) -> dict[str, Any]:
        """The record. Its text carries the verdict too, so that it cannot be quoted as if the claim held."""
        rule = f", {RULES[self.assignment]}" if self.assignment else ""
        shown = numbers if found is not None else MISSING
        return {
            "id": ":".join(filter(None, (self.dataset, self.assignment, claim))),
            "text": f"{display_name(self.dataset)}{rule}: {words} ({shown}): {verdict}.",
            "value": _finite(found.value if found else None),
            "ci_low": _finite(found.ci_low if found else None),
            "ci_high": _finite(found.ci_high if found else None),
            "verdict": verdict,
            "claim": claim,
            "model": self.findings.model,
            "dataset": self.dataset,
            "site": self.findings.site,
            "position": self.findings.position,
            "assignment": self.assignment,
        }


def rules_of(findings: Findings) -> dict[str, str]:
    """The rules of a run, in words; one whose probes were not trained on cut states has no retained one."""
    known = findings.summary["assignment"].is_in(["retained"]).any()
    return {name: words for name, words in RULES.items() if name != "retained" or known}


def read(findings: Findings) -> list[dict[str, Any]]:
    """All readings of a run, dataset by dataset."""
    plan: list[tuple[str | None, list[Callable[[_About], dict[str, Any]]]]] = [
        ("plain", [_q_below_a, _trough, _recovery, _last_layer, _sorts_by_label, _towards_false]),
        ("corrected", [_q_below_a, _trough, _recovery, _last_layer, _sorts_by_label, _fewer_flips_than_shuffled]),
        ("cross-fitted", [_q_below_a]),
        ("plain", [_random_is_small, _noop_changes_nothing]),
        ("corrected", [_random_is_small]),
        (None, [_beats_baselines, _signal_survives]),
    ]
    if "retained" in rules_of(findings):
        plan.insert(3, ("retained", [_q_below_a, _sorts_by_label, _fewer_flips_than_shuffled]))
    return [
        make(_About(findings, dataset, assignment))
        for dataset in findings.datasets
        for assignment, makers in plan
        for make in makers
    ]


def _q_below_a(about: _About) -> dict[str, Any]:
    q = about.summary("delta_p_reference", group=Q_ANCHORED)
    a = about.summary("delta_p_reference", group=A_ANCHORED)
    gap = difference(q, a)
    words = "Q-Anchored lies below A-Anchored at the reference layer"
    return about.reading("q_below_a", words, f"ΔP {points(q)} against {points(a)}", gap, below(gap, 0.0))


def _trough(about: _About) -> dict[str, Any]:
    curve = curve_of(about.findings, about.dataset, Q_ANCHORED, about.assignment or "plain")
    words = f"the Q-Anchored curve falls by more than {number(MIN_TROUGH, 0)} points at its lowest layer"
    layer, lowest = _lowest(curve)
    depth = number(100 * layer / max(1, about.findings.n_layers - 1), 0)
    numbers = f"lowest at layer {layer}, {depth} % of the depth: {points(lowest)}"
    return about.reading("trough", words, numbers, lowest, below(lowest, -MIN_TROUGH)) | {
        "layer": layer if curve else None
    }


def _recovery(about: _About) -> dict[str, Any]:
    curve = curve_of(about.findings, about.dataset, Q_ANCHORED, about.assignment or "plain")
    layer, lowest = _lowest(curve)
    words = f"the Q-Anchored curve comes back by more than {number(MIN_RECOVERY, 0)} points by the last layer"
    if curve and layer == len(curve) - 1:
        none = Estimate(0.0, 0.0, 0.0, curve[-1].n, "lowest at the last layer")
        return about.reading("recovery", words, "it is lowest at the last layer", none, "does not hold")
    rise = difference(curve[-1] if curve else None, lowest)
    numbers = f"rise from layer {layer} to the end: {points(rise)}"
    return about.reading("recovery", words, numbers, rise, above(rise, MIN_RECOVERY))


def _last_layer(about: _About) -> dict[str, Any]:
    curve = curve_of(about.findings, about.dataset, Q_ANCHORED, about.assignment or "plain")
    last = curve[-1] if curve else None
    words = "the Q-Anchored curve is still below zero at the last layer"
    return about.reading("last_layer", words, f"ΔP {points(last)}", last, below(last, 0.0))


def _random_is_small(about: _About) -> dict[str, Any]:
    knockout = about.summary("delta_p_reference", group=Q_ANCHORED)
    matched = about.summary("delta_p_matched", "random", Q_ANCHORED)
    random = matched or about.summary("delta_p_reference", "random", Q_ANCHORED)
    ratio = size_ratio(random, knockout)
    words = f"cutting random tokens moves the Q-Anchored group by less than {SMALL_RATIO:.0%} of the knockout's effect"
    numbers = f"ΔP {points(random)} against {points(knockout)}, ratio {estimate(ratio)}"
    return about.reading("random_small", words.replace("%", " %"), numbers, ratio, below(ratio, SMALL_RATIO))


def _noop_changes_nothing(about: _About) -> dict[str, Any]:
    rate = with_zero_bound(about.summary("flip_rate", "none"))
    words = f"running the same path with nothing cut flips fewer than {number(100 * NOOP_FLIPS, 0)} % of the verdicts"
    items = f" of {rate.n} items" if rate else ""
    return about.reading("noop", words, f"{percent(rate)}{items}", rate, below(rate, NOOP_FLIPS))


def _sorts_by_label(about: _About) -> dict[str, Any]:
    q = about.summary("true_share", group=Q_ANCHORED)
    a = about.summary("true_share", group=A_ANCHORED)
    gap = difference(q, a)
    words = "the rule mostly sorts items by their label"
    numbers = f"true answers: {percent(q)} of Q-Anchored, {percent(a)} of A-Anchored"
    return about.reading("sorts_by_label", words, numbers, gap, above(gap, LABEL_SORTING))


def _towards_false(about: _About) -> dict[str, Any]:
    before, after = about.summary("mean_probability_before"), about.summary("mean_probability_after")
    change = difference(after, before)
    words = 'the knockout moves the probe towards "false"'
    numbers = f'mean probability of "truthful": {estimate(before)} before, {estimate(after)} after'
    return about.reading("towards_false", words, numbers, change, below(change, 0.0))


def _fewer_flips_than_shuffled(about: _About) -> dict[str, Any]:
    # Shuffled scores carry no signal at all, so fewer flips than that means that some of the signal survives the cut.
    share = about.summary("group_share", group=Q_ANCHORED)
    null = exact(about.summary("null_share", group=Q_ANCHORED))
    gap = difference(share, null)
    words = "fewer items flip than if the scores after the cut were shuffled among the items"
    return about.reading("share_below_null", words, f"{percent(share)} against {percent(null)}", gap, below(gap, 0.0))


def _beats_baselines(about: _About) -> dict[str, Any]:
    layer = headline_layer(about.findings, about.dataset)
    probe = None if layer is None else auc_of(about.findings, about.dataset, "transfer", layer)
    found = {kind: auc_of(about.findings, about.dataset, kind, None) for kind in BASELINES}
    known = {kind: value for kind, value in found.items() if value is not None}
    best = max(known, key=lambda kind: known[kind].value, default=None)
    gain = difference(probe, known[best] if best else None)
    words = "the probe tells true from false better than every baseline"
    numbers = (
        f"AUC {estimate(probe)} at layer {layer}; best baseline, {BASELINES[best]}: {estimate(known[best])}"
        if best
        else ""
    )
    return about.reading("beats_baselines", words, numbers, gain, above(gain, 0.0)) | {"layer": layer}


def _signal_survives(about: _About) -> dict[str, Any]:
    layer = headline_layer(about.findings, about.dataset)
    refit = None
    if layer is not None:
        refit = auc_of(about.findings, about.dataset, "refit", layer, intervention="knockout")
    words = "with the question's key words cut, a probe trained anew still tells true from false"
    numbers = f"AUC {estimate(refit)} at layer {layer}, 0.5 is guessing"
    return about.reading("signal_survives", words, numbers, refit, above(refit, NO_SIGNAL_AUC)) | {"layer": layer}


def _lowest(curve: list[Estimate]) -> tuple[int, Estimate | None]:
    if not curve:
        return 0, None
    layer = min(range(len(curve)), key=lambda index: curve[index].value)
    return layer, curve[layer]


def _finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None
