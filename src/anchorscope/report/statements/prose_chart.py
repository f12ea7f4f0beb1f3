"""The chart in words: what is drawn, and curve by curve, clause by clause as the verdicts allow."""

import polars as pl

from anchorscope.report.assignment_rules import EXPLAINED, RULES, rules_of
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, dataset_styles, display_name
from anchorscope.report.statements.curve_readings import curve_statements
from anchorscope.report.statements.phrases import Point, Points, ReadingIndex
from anchorscope.report.statements.phrases import ProseSection as Section
from anchorscope.report.verdicts import MIN_TROUGH
from anchorscope.report.wording import MISSING, listing, number

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
    for dataset, style in dataset_styles(findings.datasets).items():
        colours = [_COLOURS.get(style.colour(group), "") for group in GROUPS]
        parts.append(f"{display_name(dataset)} {' and '.join(colours)}" if all(colours) else display_name(dataset))
    return ", ".join(parts) + f" ({Q_ANCHORED} first)"


RULES_TOLD = ("plain", "corrected")
"""The paper's own chart, and what remains of it; the table of readings has the rest."""


_ONLY_AFTER_A_FALL = ("trough_place", "recovery")


def series(findings: Findings, readings: ReadingIndex) -> Section:
    """All curves of the plain and the corrected rule."""
    lists = tuple(
        Points(
            f"{display_name(dataset)}, {RULES[rule]}",
            tuple(Point(group, _curve(findings, readings, dataset, rule, group)) for group in GROUPS),
        )
        for dataset in findings.datasets
        for rule in RULES_TOLD
    )
    return Section("Curve by curve", "words-series", lists=lists)


def _curve(findings: Findings, readings: ReadingIndex, dataset: str, rule: str, group: str) -> str:
    prefix = "a_" if group == A_ANCHORED else ""
    statements = {one.claim: one for one in curve_statements(findings.n_layers)}
    found = {claim: readings.one(dataset, rule, f"{prefix}{claim}") for claim in statements}
    trough = found["trough"]
    if trough is None or trough["value"] is None:
        return "no curve with bootstrap draws, so nothing can be said about its shape."
    fell = trough["ci_high"] is not None and trough["ci_high"] < -MIN_TROUGH
    decided, undecided, built_in = [], [], []
    for claim, reading in found.items():
        if reading is None or (claim in _ONLY_AFTER_A_FALL and not fell):
            continue
        statement, numbers = statements[claim], f"({reading['numbers']})"
        if reading["verdict"] is None:
            built_in.append(numbers[1:-1])
        elif reading["verdict"] == "undecided":
            undecided.append(f"that it {statement.holds} {numbers}")
        else:
            decided.append(f"{statement.holds if reading['verdict'] == 'holds' else statement.fails} {numbers}")
    sentences = [f"{trough['n']} items."]
    if decided:
        sentences.append(f"It {'; '.join(decided)}.")
    if undecided:
        sentences.append(f"Undecided: {'; '.join(undecided)}.")
    if built_in:
        sentences.append(f"So by construction: {'; '.join(built_in)}.")
    return " ".join(sentences)
