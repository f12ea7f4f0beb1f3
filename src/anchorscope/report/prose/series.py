"""The detailed analysis: one bullet per curve, clause by clause as its verdicts allow."""

from dataclasses import dataclass

from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, display_name
from anchorscope.report.prose.phrases import Told
from anchorscope.report.prose.section import Point, Points, Section
from anchorscope.report.readings.of_curves import MIN_RECOVERY, MIN_TROUGH, NEAR_ZERO, STAYS_FLAT
from anchorscope.report.readings.rules import RULES
from anchorscope.report.wording import number

RULES_TOLD = ("plain", "corrected")
"""The paper's own chart, and what remains of it; the table of readings has the rest."""


@dataclass(frozen=True)
class Clause:
    """What may be said of one claim about "it", the curve."""

    holds: str
    fails: str
    that: str
    """The claim itself, for "undecided: that …"."""


_ZERO, _FALL, _RISE = (number(size, 0) for size in (NEAR_ZERO, MIN_TROUGH, MIN_RECOVERY))
_FLAT = f"within ±{number(STAYS_FLAT, 0)} points of zero"

CLAUSES = {
    "first_layer": Clause(
        f"starts within ±{_ZERO} points of zero", f"does not start within ±{_ZERO} points of zero",
        f"it starts within ±{_ZERO} points of zero",
    ),
    "flat": Clause(
        f"stays {_FLAT} at every layer", f"does not stay {_FLAT} at every layer", f"it stays {_FLAT} at every layer"
    ),
    "trough": Clause(
        f"gets more than {_FALL} points below zero", f"never gets more than {_FALL} points below zero",
        f"it gets more than {_FALL} points below zero",
    ),
    "trough_place": Clause(
        "is lowest in the middle third of the depth", "is lowest outside the middle third of the depth",
        "it is lowest in the middle third of the depth",
    ),
    "recovery": Clause(
        f"comes back by more than {_RISE} points", f"does not come back by more than {_RISE} points",
        f"it comes back by more than {_RISE} points",
    ),
    "last_layer": Clause("ends below zero", "ends above zero", "it ends below zero"),
    "plateau": Clause(
        "is level over the last quarter of the depth", "is not level over the last quarter of the depth",
        "it is level over the last quarter of the depth",
    ),
    "volatility": Clause("is smooth", "jumps from layer to layer", "it is smooth"),
}  # fmt: skip
"""Of one curve, in the order in which they are told."""

_ONLY_AFTER_A_FALL = ("trough_place", "recovery")


def series(findings: Findings, told: Told) -> Section:
    """All curves of the plain and the corrected rule."""
    lists = tuple(
        Points(
            f"{display_name(dataset)}, {RULES[rule]}",
            tuple(Point(group, _curve(told, dataset, rule, group)) for group in GROUPS),
        )
        for dataset in findings.datasets
        for rule in RULES_TOLD
    )
    return Section("Curve by curve", "words-series", lists=lists)


def _curve(told: Told, dataset: str, rule: str, group: str) -> str:
    prefix = "a_" if group == A_ANCHORED else ""
    found = {claim: told.one(dataset, rule, f"{prefix}{claim}") for claim in CLAUSES}
    trough = found["trough"]
    if trough is None or trough["value"] is None:
        return "no curve with bootstrap draws, so nothing can be said about its shape."
    decided, undecided = [], []
    for claim, reading in found.items():
        if reading is None or (claim in _ONLY_AFTER_A_FALL and trough["verdict"] != "holds"):
            continue
        clause, numbers = CLAUSES[claim], f"({reading['numbers']})"
        if reading["verdict"] == "undecided":
            undecided.append(f"that {clause.that} {numbers}")
        else:
            decided.append(f"{clause.holds if reading['verdict'] == 'holds' else clause.fails} {numbers}")
    sentences = [f"{trough['n']} items."]
    if decided:
        sentences.append(f"It {'; '.join(decided)}.")
    if undecided:
        sentences.append(f"Undecided: {'; '.join(undecided)}.")
    return " ".join(sentences)
