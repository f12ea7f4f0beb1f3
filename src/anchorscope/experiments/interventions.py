"""Interventions: all of them at the reference layer, and those of one kind as curves over the layers.

Where the knockout's controls do as much as it does, or another way to remove the same words does something else, the
chart says less than it seems to.
"""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from matplotlib.lines import Line2D

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.experiments import section
from anchorscope.report.charts import CURVE_COLUMNS, POINTS_NOTE, drawable
from anchorscope.report.findings import Findings, find, interventions, present, select
from anchorscope.report.palette import (
    A_ANCHORED,
    CONTROL_GREY,
    GROUPS,
    INK,
    LINE_STYLES,
    Q_ANCHORED,
)
from anchorscope.report.panel_figure import ChartSpec, Forest, Lines, Series
from anchorscope.report.verdicts import (
    MIN_TROUGH,
    SAME_RATE,
    SMALL_RATIO,
    all_of,
    below,
    between,
    size_ratio,
)
from anchorscope.report.wording import count, percent, points
from anchorscope.stats.estimate import Estimate

OTHERS = tuple(
    name
    for name, entry in INTERVENTIONS.items()
    if entry.experiment not in ("knockout", "exact-tokens")
)
"""Those that a run without further experiments lacks."""
_LOOKS = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), (CONTROL_GREY, "D"))
"""Colours and markers of a section's own interventions, in their order."""
_NO_BAND = (*CONTROLS, "content")  # bands of all would hide each other
_AT_REFERENCE = "delta_p_reference"


def effects_of(
    shown: Sequence[str], made_of: Sequence[str]
) -> Callable[[Findings], pl.DataFrame]:
    """The summary's rows about some interventions, on datasets that have one of `made_of`."""

    def rows(findings: Findings) -> pl.DataFrame:
        selected = select(interventions(findings), intervention=shown)
        made = select(selected, intervention=made_of)["dataset"].unique().to_list()
        return select(selected, dataset=made)

    return rows


EFFECTS = section.TableSpec(
    "",
    (
        section.Key(
            "intervention",
            "what is done",
            {name: intervention_label(name) for name in INTERVENTIONS},
        ),
    ),
    (
        *(
            column
            for group in GROUPS
            for column in (
                section.value(
                    f"{group} ΔP", points, quantity=_AT_REFERENCE, group=group
                ),
                section.items(quantity=_AT_REFERENCE, group=group),
            )
        ),
        section.value("Q − A", points, quantity=f"{_AT_REFERENCE}_difference"),
        section.value("Q flips", percent, quantity="flip_rate", group=Q_ANCHORED),
        section.value("A flips", percent, quantity="flip_rate", group=A_ANCHORED),
        section.value("all flips", percent, quantity="flip_rate", group=None),
    ),
)
"""ΔP at l* and flips of both groups, a line per intervention."""


def effect(rows: pl.DataFrame, name: str) -> Estimate | None:
    """ΔP at l* of Q-Anchored items under an intervention."""
    return find(rows, quantity=_AT_REFERENCE, intervention=name, group=Q_ANCHORED)


def _forest_rows(findings: Findings) -> pl.DataFrame:
    rows = effects_of(tuple(INTERVENTIONS), OTHERS)(findings)
    columns = (
        "dataset",
        "intervention",
        "group",
        "value",
        "ci_low",
        "ci_high",
        "n",
        "method",
    )
    return select(rows, quantity=_AT_REFERENCE, group=GROUPS).select(columns)


def _forests(data: pl.DataFrame) -> list[Forest]:
    lines = {
        name: intervention_label(name)
        for name in present(data, "intervention", tuple(INTERVENTIONS))
    }
    return [Forest("intervention", lines, "ΔP at l*", "", 3.3, set_apart=CONTROLS)]


def _controls(rows: pl.DataFrame) -> section.Said | None:
    """The strongest control beside the knockout."""
    knockout = effect(rows, "knockout")
    parts = {
        name: part
        for name in CONTROLS
        if (part := size_ratio(effect(rows, name), knockout)) is not None
    }
    if not parts:
        return None
    most = max(parts, key=lambda name: parts[name].value)
    verdict = all_of([below(part, SMALL_RATIO) for part in parts.values()])
    return section.Said(
        verdict,
        f"{intervention_label(most)}: {section.whole_percent(parts[most])}, n = {count(parts[most].n)}",
    )


SECTION = section.SectionSpec(
    slug="interventions",
    title="All interventions",
    rows=effects_of(tuple(INTERVENTIONS), OTHERS),
    asks="What does every intervention do to the two groups at the reference layer?",
    careful="Below the dashed line stand controls, which should do little. The knockout made the groups, so its own Q "
    "− A is partly built in.",
    answer=section.Answer(
        "Every control does less than a quarter of what the knockout does to Q-Anchored items",
        "A control does more than a quarter of what the knockout does to Q-Anchored items: not all of it is the key "
        "words'",
        "Whether every control does less than a quarter of what the knockout does is undecided",
        _controls,
    ),
    charts=(
        ChartSpec(
            "interventions",
            "all interventions",
            "ΔP at the reference layer of Q-Anchored and A-Anchored items under every intervention",
            "Filled: Q-Anchored. Open: A-Anchored. Below the dashed line: controls.",
            "ΔP at the reference layer l*, in percentage points. Lines: 95 % intervals. The clean probe "
            "measures.",
            _forest_rows,
            _forests,
            share="x",
            labels=2.35,
            gap=0.42,
            legend_columns=2,
            height=lambda data: 0.5 + 0.265 * data["intervention"].n_unique(),
        ),
    ),
    tables=(EFFECTS,),
    docs="evidence/README.md",
)


def _section(
    slug: str,
    title: str,
    own: tuple[str, ...],
    asks: str,
    careful: str,
    answer: section.Answer,
) -> section.SectionSpec:
    """A section with one figure, the curves over the layers, and one table, at the reference layer."""
    beside = ("knockout", "random") if slug == "exact-tokens" else ("knockout",)
    looks = {"knockout": (INK, ""), "random": (CONTROL_GREY, "")} | dict(
        zip(own, _LOOKS, strict=False)
    )

    def curves(findings: Findings) -> pl.DataFrame:
        """The clean probe's curves of all answers, of datasets that have one of the section's own."""
        data = select(
            drawable(findings),
            truth="all",
            intervention=(*beside, *own),
            group=GROUPS,
            dataset=findings.datasets,
        ).select(CURVE_COLUMNS)
        made = select(data, intervention=own)["dataset"].unique().to_list()
        return select(data, dataset=made).sort(
            "dataset", "intervention", "group", "layer"
        )

    def panels(data: pl.DataFrame) -> list[Lines]:
        every = 4 if data["layer"].n_unique() > 4 else 1
        series = []
        for index, name in enumerate(present(data, "intervention", (*beside, *own))):
            colour, marker = looks[name]
            # Markers of several lines do not cover each other.
            style: dict[str, Any] = {
                "color": colour,
                "linewidth": 1.6,
                "markevery": (index % every, every),
            }
            style |= {"marker": marker, "markersize": 4.0, "markeredgewidth": 0.0}
            band = "none" if name in _NO_BAND else "band"
            for group in GROUPS:
                label = intervention_label(name) if group == Q_ANCHORED else ""
                line = style | {"linestyle": LINE_STYLES[group]}
                series.append(
                    Series({"intervention": name, "group": group}, line, label, band)
                )
        return [Lines(series, "ΔP", "", 4.35, y="delta_p")]

    chart = ChartSpec(
        {"edges": "direct_edges"}.get(slug, slug.replace("-", "_")),
        title.lower(),
        f"ΔP per layer of both groups: {title.lower()}",
        "Solid: Q-Anchored. Dashed: A-Anchored. Black: the knockout, for comparison.",
        f"{POINTS_NOTE} Controls are drawn without.",
        curves,
        panels,
        height=2.8,
        share="y",
        gap=0.42,
        more_handles=lambda data, _: [
            Line2D([], [], color=INK, linestyle=LINE_STYLES[group], label=group)
            for group in GROUPS
        ],
    )
    rows = effects_of((*beside, *own), own)
    return section.SectionSpec(
        slug, title, asks, careful, answer, (chart,), (EFFECTS,), rows=rows
    )


def _part_of_knockout(
    name: str, low: float, high: float = float("inf")
) -> Callable[[pl.DataFrame], section.Said | None]:
    """What an intervention does to Q-Anchored items, over what the knockout does."""

    def of(rows: pl.DataFrame) -> section.Said | None:
        part = size_ratio(effect(rows, name), effect(rows, "knockout"))
        return section.number(part, between(part, low, high), section.whole_percent)

    return of


def _gap_between_groups(*names: str) -> Callable[[pl.DataFrame], section.Said | None]:
    """Q − A under the first of some interventions that was made."""

    def of(rows: pl.DataFrame) -> section.Said | None:
        for name in names:
            gap = find(rows, quantity=f"{_AT_REFERENCE}_difference", intervention=name)
            if gap is not None:
                return section.number(gap, below(gap, -MIN_TROUGH), points, "Q − A")
        return None

    return of


WORDS = _section(
    "exact-tokens",
    "Which words are cut",
    ("subject", "property", "content"),
    "Which words does the probe need: the subject, the property, or both?",
    "The groups come from cutting both. A question that does not say such words is left out of that line.",
    section.Answer(
        "Cutting the subject alone does at least half of what the knockout does to Q-Anchored items",
        "Cutting the subject alone does less than half of what the knockout does to Q-Anchored items",
        "Whether the subject alone does half of what the knockout does is undecided",
        _part_of_knockout("subject", section.HALF),
    ),
)

PATCHING = _section(
    "patching",
    "Patching: the key words of another item",
    ("patch-same", "patch-random", "patch-control", "patch-self"),
    "Does the verdict need this question, or any? Another item's key words are written in; nothing is masked.",
    "A false answer stays false whatever is put in: read the true ones. Own words put in again must change nothing.",
    section.Answer(
        "Other key words lower Q-Anchored items at least 5 points more than A-Anchored ones",
        "Other key words do not lower Q-Anchored items 5 points more than A-Anchored ones",
        "Whether other key words lower Q-Anchored items more than A-Anchored ones is undecided",
        _gap_between_groups("patch-same", "patch-random"),
    ),
)

ANSWER_ONLY = _section(
    "answer-only",
    "Answer only",
    ("answer-template", "answer-bare"),
    "What does the answer say on its own? The question is dropped, with its template or without.",
    "The probe never saw such texts, so all verdicts may move together: compare the groups.",
    section.Answer(
        "Without the question, Q-Anchored items fall at least 5 points more than A-Anchored ones",
        "Without the question, Q-Anchored items do not fall 5 points more than A-Anchored ones",
        "Whether Q-Anchored items fall more than A-Anchored ones without the question is undecided",
        _gap_between_groups("answer-template", "answer-bare"),
    ),
)

EDGES = _section(
    "edges",
    "Direct edges",
    ("direct",),
    "Do the key words reach the answer directly? Only the answer's own tokens lose sight of them.",
    "Tokens in between may still read them and pass them on.",
    section.Answer(
        "The direct edges alone do at least half of what the knockout does to Q-Anchored items",
        "The direct edges alone do less than half of what the knockout does: tokens in between carry the rest",
        "Whether the direct edges do half of what the knockout does is undecided",
        _part_of_knockout("direct", section.HALF),
    ),
)

ZEROING = _section(
    "zeroing",
    "Zeroing instead of masking",
    ("zeroing",),
    "Does it matter how an edge is cut? Masking hands the lost attention to other tokens, zeroing takes it away.",
    "Where the two differ, the effect belongs to the way of cutting as much as to the question.",
    section.Answer(
        "Zeroing does what masking does to Q-Anchored items, within a quarter",
        "Zeroing does more or less than masking, by over a quarter: the way of cutting matters",
        "Whether zeroing does what masking does is undecided",
        _part_of_knockout("zeroing", *SAME_RATE),
    ),
)
