"""What is drawn: overview, axes, lines, bands, and the range that the numbers really span."""

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name, looks
from anchorscope.report.prose.section import Point, Points, Section
from anchorscope.report.readings.rules import rules_of
from anchorscope.report.story import listing
from anchorscope.report.wording import MISSING, number

NOISE = (
    "The weights of this model were drawn at random. It knows nothing, so everything below describes noise, whatever "
    "the verdicts say."
)

_COLOURS = {
    "#1f77b4": "blue", "#ff7f0e": "orange", "#2ca02c": "green", "#d62728": "red", "#9467bd": "purple",
    "#8c564b": "brown", "#e377c2": "pink", "#7f7f7f": "grey", "#17a2b8": "teal", "#b5a319": "olive",
}  # fmt: skip
_PANELS = {
    "plain": "the rule as the paper states it",
    "corrected": "the shift that the cut gives to every item taken out",
    "cross-fitted": "one probe assigns, another measures",
    "retained": "groups by what a probe trained on the cut states still finds",
}


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
    panels = "; ".join(f"{name}: {_PANELS[name]}" for name in rules_of(findings))
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
