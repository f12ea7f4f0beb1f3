"""All readings of a run: which claims are put to which dataset, group and rule, and which of them matter first.

The question share comes first: its tested questions answer what was asked, its controls say whether to believe it. The
curves of the paper's rule and of its variants are described. What such a rule brings about by itself is told without a
verdict: in a world with one pathway its two curves lie just as far apart.
"""

from collections.abc import Callable, Sequence

from anchorscope.report.assignment_rules import rules_of
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.shares import has_shares
from anchorscope.report.statements.curve_readings import in_each, of_curve, of_group, separation
from anchorscope.report.statements.number_readings import (
    adds_to_confidence,
    beats_baselines,
    fewer_flips_than_shuffled,
    noop_changes_nothing,
    q_below_a,
    random_is_small,
    signal_survives,
    sorts_by_label,
    towards_false,
)
from anchorscope.report.statements.reading_record import About, Reading, built_in
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.share_controls import SHARE_CONTROLS, control_readings
from anchorscope.report.statements.share_shape import description_readings, shape_readings
from anchorscope.report.statements.share_tests import QUESTIONS, question_readings

_NUMBERS: dict[str | None, tuple[Callable[[About], Reading], ...]] = {
    "plain": (q_below_a, sorts_by_label, towards_false, random_is_small, noop_changes_nothing),
    "corrected": (q_below_a, sorts_by_label, fewer_flips_than_shuffled, random_is_small),
    "retained": (q_below_a, sorts_by_label, fewer_flips_than_shuffled),
    "cross-fitted": (q_below_a,),
    None: (beats_baselines, adds_to_confidence, signal_survives),
}
"""Claims about single numbers, per rule."""

_WHOLE_CURVES = ("plain", "corrected", "retained")
"""Rules whose curves are read one by one; of cross-fitted ones only whether they separate."""

BY_CONSTRUCTION = (
    *((rule, claim) for rule in ("plain", "corrected", "cross-fitted", "retained")
      for claim in ("q_below_a", "separation", "trough")),
    ("corrected", "sorts_by_label"),
)  # fmt: skip
"""Items that are called Q-Anchored because they fall at l* do fall, and lie below the others; the corrected rule makes
both groups alike in their labels by design. Told without a verdict."""

KEY = (
    *((None, question.claim) for question in QUESTIONS), *((None, claim) for claim in SHARE_CONTROLS),
    *((None, claim) for claim in ("share_peak", "beats_baselines", "adds_to_confidence", "signal_survives")),
    *(("plain", claim) for claim in ("sorts_by_label", "trough_place", "recovery", "a_flat", "random_small", "noop")),
)  # fmt: skip
"""What a reader wants to know first."""
KEY_OF_DATASETS = tuple(("plain", claim) for claim in ("lowest_dataset", "order_stable", "spread_end", "converge"))
"""The same, where there are several datasets."""


def read(findings: Findings) -> list[Reading]:
    """All readings of a run, dataset by dataset, then those over all datasets."""
    rules = rules_of(findings)
    curves = {rule: RunCurves(findings, rule) for rule in rules}
    single = [*_of_shares(findings), *(
        _judged(reading)
        for dataset in findings.datasets
        for rule in (*rules, None)
        for reading in _of_dataset(About(findings, dataset, rule), curves[rule] if rule else None)
    )]  # fmt: skip
    if len(findings.datasets) < 2:
        return [_marked(reading, KEY) for reading in single]
    found = {(rule, claim): _those(single, rule, claim) for rule, claim in KEY}
    together = [in_each(About(findings, None, rule), those) for (rule, _), those in found.items() if those]
    compared = [reading for rule in rules for reading in _of_datasets(About(findings, None, rule), curves[rule])]
    return [*single, *(reading | {"key": True} for reading in together),
            *(_marked(reading, KEY_OF_DATASETS) for reading in compared)]  # fmt: skip


def _of_shares(findings: Findings) -> list[Reading]:
    """The question share: what is tested, the controls, the shape; nothing where it was not measured."""
    if not has_shares(findings):
        return []
    told = [About(findings, dataset, None) for dataset in findings.datasets]
    further = [reading for about in told for make in (control_readings, shape_readings, description_readings)
               for reading in make(about)]  # fmt: skip
    return [*question_readings(findings), *further]


def _judged(reading: Reading) -> Reading:
    return built_in(reading) if (reading["assignment"], reading["claim"]) in BY_CONSTRUCTION else reading


def _of_dataset(about: About, curves: RunCurves | None) -> list[Reading]:
    found = [make(about) for make in _NUMBERS[about.assignment]]
    if curves is None or about.dataset is None:
        return found
    q, a = curves.q(about.dataset), curves.a(about.dataset)
    found.append(separation(about, q, a))
    if about.assignment in _WHOLE_CURVES:
        found += [*of_curve(about, Q_ANCHORED, q), *of_curve(about, A_ANCHORED, a)]
    return found


def _of_datasets(about: About, curves: RunCurves) -> list[Reading]:
    if about.assignment not in _WHOLE_CURVES:
        return []
    datasets = about.findings.datasets
    return [
        *of_group(about, Q_ANCHORED, [curves.q(dataset) for dataset in datasets]),
        *of_group(about, A_ANCHORED, [curves.a(dataset) for dataset in datasets]),
    ]


def _those(readings: Sequence[Reading], rule: str | None, claim: str) -> list[Reading]:
    return [reading for reading in readings if (reading["assignment"], reading["claim"]) == (rule, claim)]


def _marked(reading: Reading, keys: Sequence[tuple[str | None, str]]) -> Reading:
    return reading | {"key": (reading["assignment"], reading["claim"]) in keys}
