"""Interventions: every one beside every other at the reference layer, and those of one kind as curves over the layers.

The knockout is one way to take the question away. Where its controls do as much as it does, or where another way to
take the same words away does something else, the chart says less than it seems to. The curves are of other words,
patching, answer only, direct edges and zeroing: the lines of a panel compare the same groups of items; the knockout's
curve, in black, is there to be compared with.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.lines import Line2D

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.experiments import section
from anchorscope.report.assignment_rules import PANEL_TITLES, rule_title
from anchorscope.report.charts.line_chart import CURVE_COLUMNS, POINTS_NOTE, drawable
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, CONTROL_GREY, GROUPS, INK, LINE_STYLES, Q_ANCHORED
from anchorscope.report.panel_figure import ChartSpec, Forest, GroupMarks, Lines, Series
from anchorscope.report.result_rows import find, interventions, present, rules_in, select
from anchorscope.report.verdicts import (
    MIN_TROUGH,
    SAME_RATE,
    SMALL_RATIO,
    above,
    all_of,
    below,
    between,
    difference,
    size_ratio,
)
from anchorscope.report.wording import count, percent, points
from anchorscope.stats.estimate import Estimate

OTHERS = tuple(one.name for one in INTERVENTIONS.values() if one.experiment not in ("knockout", "exact-tokens"))
"""Those that a run without further experiments does not have."""
_BLUE, _ORANGE, _GREEN = "#0072b2", "#d55e00", "#009e73"
_NO_BAND = (*CONTROLS, "content")  # bands of all would hide each other

Looks = Mapping[str, tuple[str, str]]
"""Intervention → colour and marker."""
_COLUMNS = ("dataset", "assignment", "intervention", "group", "value", "ci_low", "ci_high", "n", "method")


def effects_of(shown: Sequence[str], made_of: Sequence[str]) -> Callable[[Findings], pl.DataFrame]:
    """The summary's rows about some interventions, on datasets that have one of `made_of`."""

    def rows(findings: Findings) -> pl.DataFrame:
        found = select(interventions(findings), intervention=shown, assignment=tuple(PANEL_TITLES))
        made = select(found, intervention=made_of)["dataset"].unique().to_list()
        return select(found, dataset=made)

    return rows


EFFECTS = section.TableSpec(
    "",
    (
        section.Key("intervention", "what is done", {name: intervention_label(name) for name in INTERVENTIONS}),
        section.RULE,
    ),
    (
        section.value("Q-Anchored ΔP", points, quantity="delta_p_reference", group=Q_ANCHORED),
        section.items(quantity="delta_p_reference", group=Q_ANCHORED),
        section.value("A-Anchored ΔP", points, quantity="delta_p_reference", group=A_ANCHORED),
        section.items(quantity="delta_p_reference", group=A_ANCHORED),
        section.value("Q − A", points, quantity="delta_p_reference_difference"),
        section.value("Q flips", percent, quantity="flip_rate", group=Q_ANCHORED),
        section.value("A flips", percent, quantity="flip_rate", group=A_ANCHORED),
        section.value("all flips", percent, quantity="flip_rate", group=None),
    ),
)
"""ΔP at l* and flips of both groups, a line per intervention and rule."""


def effect(rows: pl.DataFrame, name: str, group: str = Q_ANCHORED) -> Estimate | None:
    """ΔP at l* of a group under an intervention."""
    return find(rows, quantity="delta_p_reference", intervention=name, group=group)


def _forest_rows(findings: Findings) -> pl.DataFrame:
    rows = effects_of(tuple(INTERVENTIONS), OTHERS)(findings)
    return select(rows, quantity="delta_p_reference", group=GROUPS).select(_COLUMNS)


def _forests(data: pl.DataFrame) -> list[Forest]:
    lines = {name: intervention_label(name) for name in present(data, "intervention", tuple(INTERVENTIONS))}
    return [
        Forest(
            "intervention",
            lines,
            GroupMarks(),
            "ΔP at l*",
            rule_title(rule),
            3.3,
            {"assignment": rule},
            set_apart=CONTROLS,
            words_once=True,
        )
        for rule in rules_in(data)
    ]


def _controls(rows: pl.DataFrame) -> section.Said | None:
    """The strongest control beside the knockout."""
    knockout = effect(rows, "knockout")
    parts = {name: part for name in CONTROLS if (part := size_ratio(effect(rows, name), knockout)) is not None}
    if not parts:
        return None
    most = max(parts, key=lambda name: parts[name].value)
    verdict = all_of([below(part, SMALL_RATIO) for part in parts.values()])
    return section.Said(
        verdict, f"{intervention_label(most)}: {section.whole_percent(parts[most])}, n = {count(parts[most].n)}"
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
            "ΔP at the reference layer l*, in percentage points. Lines: 95 % intervals. The clean probe measures under "
            "every rule.",
            _forest_rows,
            _forests,
            share="row x",
            labels=2.35,
            gap=0.42,
            legend_columns=2,
            height=lambda data: 0.5 + 0.265 * data["intervention"].n_unique(),
        ),
    ),
    tables=(EFFECTS,),
    docs="evidence/README.md",
)


def _curves_of(looks: Looks, own: tuple[str, ...]) -> Callable[[Findings], pl.DataFrame]:
    """The clean probe's curves, all answers together, of datasets that have one of `own`."""

    def rows(findings: Findings) -> pl.DataFrame:
        here = drawable(findings.curves, findings.site, findings.position)
        data = select(
            here,
            assignment=tuple(PANEL_TITLES),
            truth="all",
            intervention=tuple(looks),
            group=GROUPS,
            dataset=findings.datasets,
        ).select(CURVE_COLUMNS)
        made = select(data, intervention=own)["dataset"].unique().to_list()
        return select(data, dataset=made).sort("dataset", "assignment", "intervention", "group", "layer")

    return rows


def _panels_of(looks: Looks) -> Callable[[pl.DataFrame], list[Lines]]:
    """A panel per rule."""

    def panels(data: pl.DataFrame) -> list[Lines]:
        series = [
            _series(name, looks[name], place, group, _many_layers(data))
            for place, name in enumerate(present(data, "intervention", tuple(looks)))
            for group in GROUPS
        ]
        return [
            Lines(series, "ΔP", title, 4.35, {"assignment": rule}, y="delta_p") for rule, title in PANEL_TITLES.items()
        ]

    return panels


def _series(name: str, looks: tuple[str, str], place: int, group: str, many: bool) -> Series:
    style: dict[str, Any] = {"color": looks[0], "linestyle": LINE_STYLES[group], "linewidth": 1.6}
    if looks[1]:
        every = (place % 4, 4) if many else 1  # markers of several lines do not cover each other
        style |= {"marker": looks[1], "markersize": 4.0, "markeredgewidth": 0.0, "markevery": every}
    label = intervention_label(name) if group == Q_ANCHORED else ""
    return Series({"intervention": name, "group": group}, style, label, "none" if name in _NO_BAND else "band")


def _many_layers(data: pl.DataFrame) -> bool:
    return data["layer"].n_unique() > 4


def _section(
    slug: str, title: str, looks: Looks, asks: str, careful: str, answer: section.Answer
) -> section.SectionSpec:
    """A section with one figure, and one table: what the interventions do at the reference layer."""
    own = tuple(name for name in looks if name not in ("knockout", "random"))
    name = {"edges": "direct_edges"}.get(slug, slug.replace("-", "_"))
    chart = ChartSpec(
        name,
        title.lower(),
        f"ΔP per layer of both groups: {title.lower()}, a panel per rule",
        "Solid: Q-Anchored. Dashed: A-Anchored. Black: the knockout, for comparison.",
        f"{POINTS_NOTE} Controls are drawn without.",
        _curves_of(looks, own),
        _panels_of(looks),
        height=2.8,
        share="y",
        gap=0.42,
        more_handles=lambda data, _: [
            Line2D([], [], color=INK, linestyle=LINE_STYLES[group], label=group) for group in GROUPS
        ],
    )
    rows = effects_of(tuple(looks), own)
    return section.SectionSpec(
        slug,
        title,
        rows,
        asks,
        careful,
        answer,
        (chart,),
        (EFFECTS,),
        docs="exact-tokens.md" if slug == "exact-tokens" else "",
    )


def _part_of_knockout(
    name: str, low: float, high: float = float("inf")
) -> Callable[[pl.DataFrame], section.Said | None]:
    """What an intervention does to Q-Anchored items, over what the knockout does."""

    def of(rows: pl.DataFrame) -> section.Said | None:
        part = size_ratio(effect(rows, name), effect(rows, "knockout"))
        verdict = above(part, low) if high == float("inf") else between(part, low, high)
        return section.number(part, verdict, section.whole_percent)

    return of


def _gap_between_groups(*names: str) -> Callable[[pl.DataFrame], section.Said | None]:
    """Q − A under the first of some interventions that was made."""

    def of(rows: pl.DataFrame) -> section.Said | None:
        for name in names:
            gap = find(rows, quantity="delta_p_reference_difference", intervention=name)
            gap = gap or difference(effect(rows, name), effect(rows, name, A_ANCHORED))
            if gap is not None:
                return section.number(gap, below(gap, -MIN_TROUGH), points, "Q − A")
        return None

    return of


WORDS = _section(
    "exact-tokens",
    "Which words are cut",
    {
        "knockout": (INK, ""),
        "subject": (_BLUE, "o"),
        "property": (_ORANGE, "s"),
        "content": (_GREEN, "^"),
        "random": (CONTROL_GREY, ""),
    },
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
    {
        "knockout": (INK, ""),
        "patch-same": (_BLUE, "o"),
        "patch-random": (_ORANGE, "s"),
        "patch-control": (_GREEN, "^"),
        "patch-self": (CONTROL_GREY, "D"),
    },
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
    {"knockout": (INK, ""), "answer-template": (_BLUE, "o"), "answer-bare": (_ORANGE, "s")},
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
    {"knockout": (INK, ""), "direct": (_BLUE, "o")},
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
    {"knockout": (INK, ""), "zeroing": (_ORANGE, "s")},
    "Does it matter how an edge is cut? Masking hands the lost attention to other tokens, zeroing takes it away.",
    "Where the two differ, the effect belongs to the way of cutting as much as to the question.",
    section.Answer(
        "Zeroing does what masking does to Q-Anchored items, within a quarter",
        "Zeroing does more or less than masking, by over a quarter: the way of cutting matters",
        "Whether zeroing does what masking does is undecided",
        _part_of_knockout("zeroing", *SAME_RATE),
    ),
)
