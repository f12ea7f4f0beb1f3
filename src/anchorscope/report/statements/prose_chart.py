"""The chart in words: what is drawn, and curve by curve, clause by clause as the verdicts allow."""

from dataclasses import dataclass

import polars as pl

from anchorscope.report.assignment_rules import EXPLAINED, RULES, rules_of
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name, looks
from anchorscope.report.run_summary import listing
from anchorscope.report.statements.curve_readings import MIN_RECOVERY, MIN_TROUGH, NEAR_ZERO, STAYS_FLAT
from anchorscope.report.statements.phrases import Point, Points, Told
from anchorscope.report.statements.phrases import ProseSection as Section
from anchorscope.report.wording import MISSING, number

NOISE = (
    "The weights of this model were drawn at random. It knows nothing, so everything below describes noise, whatever "
    "the verdicts say."
)

_COLOURS = {
    "#1f77b4": "blue", "#ff7f0e": "orange", "#2ca02c": "green", "#d62728": "red", "#9467bd": "purple",
    "#8c564b": "brown", "#e377c2": "pink", "#7f7f7f": "grey", "#17a2b8": "teal", "#b5a319": "olive",
}  # fmt: skip


def overview(findings: Findings) -> Section:
    """What the chart is about."""
    names = listing([display_name(dataset) for dataset in findings.datasets])
    what = (
        f"The chart follows {findings.model} through its {findings.n_layers} layers on {names}. At every layer a "
        "linear probe says how probable it is that the model's answer is true; ΔP is what the true label loses or "
        "gains, in percentage points, when no later token may attend to the question's key words."
    )
    datasets = len(findings.datasets)
    lines = "two lines" if datasets == 1 else f"two lines for each of {datasets} datasets"
    groups = (
        f"There are {lines}: the items whose verdict the cut overturns (Q-Anchored), and those whose verdict "
        "stays (A-Anchored). Every sentence below comes from the numbers; what the intervals leave open is called "
        "undecided."
    )
    paragraphs = (what, groups)
    return Section("Overview", "words-overview", (NOISE, *paragraphs) if findings.random_weights else paragraphs)


def components(findings: Findings) -> Section:
    """Axes, lines, legend, bands."""
    last = findings.n_layers - 1
    panels = "; ".join(f"{name}: {EXPLAINED[name]}" for name in rules_of(findings))
    points = (
        Point("x axis", f"layer, from 0 to {last}; the {findings.site} output of each, read at the position "
              f"“{findings.position}”."),
        Point("y axis", f"ΔP in percentage points; zero means that the cut changes nothing. {_drawn(findings)}"),
        Point("lines", "solid for Q-Anchored, dashed for A-Anchored; colour and marker tell the dataset: "
              f"{_legend(findings)}."),
        Point("bands", "95 % bootstrap intervals over groups of items, layer by layer. Statements about a whole curve "
              "rest on a wider band that holds for all its layers at once."),
        Point("rules", f"{panels}."),
    )  # fmt: skip
    return Section("Components", "words-components", lists=(Points("", points),))


def _drawn(findings: Findings) -> str:
    """The range of what the chart shows under the plain rule."""
    rows = findings.curves.filter(
        (pl.col("site") == findings.site)
        & (pl.col("position") == findings.position)
        & (pl.col("intervention") == "knockout")
        & (pl.col("assignment") == "plain")
        & (pl.col("truth") == "all")
        & pl.col("delta_p").is_finite()
    )
    if not rows.height:
        return f"What is drawn: {MISSING}."
    ends = [rows["delta_p"].min(), rows["delta_p"].max(), rows["ci_low"].min(), rows["ci_high"].max()]
    low, high, least, most = (number(end, 1) if isinstance(end, float) else MISSING for end in ends)
    return f"The lines of the plain rule run from {low} to {high}, with their bands from {least} to {most}."


def _legend(findings: Findings) -> str:
    """PopQA blue and orange, …; a colour without a common name is left out."""
    parts = []
    for dataset, look in looks(findings.datasets).items():
        colours = [_COLOURS.get(look.colour(group), "") for group in GROUPS]
        parts.append(f"{display_name(dataset)} {' and '.join(colours)}" if all(colours) else display_name(dataset))
    return ", ".join(parts) + f" ({Q_ANCHORED} first)"


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
