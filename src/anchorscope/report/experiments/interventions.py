"""Every intervention beside every other: what each does to both pathways at the reference layer.

The knockout is one way to take the question away. Where its controls do as much as it does, or where another way to
take the same words away does something else, the chart says less than it seems to.
"""

from collections.abc import Callable, Sequence

import polars as pl

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.report.assignment_rules import PANEL_TITLES, rule_title
from anchorscope.report.experiments.experiment_rows import find, interventions, present, rules_in, select
from anchorscope.report.experiments.panels import Forest, GroupMarks
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import Answer, Said, whole_percent
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import RULE, Key, TableSpec, items, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.report.verdicts import SMALL_RATIO, all_of, below, size_ratio
from anchorscope.report.wording import count, percent, points
from anchorscope.stats.estimate import Estimate

OTHERS = tuple(one.name for one in INTERVENTIONS.values() if one.experiment not in ("knockout", "exact-tokens"))
"""Those that a run without further experiments does not have."""
_COLUMNS = ("dataset", "assignment", "intervention", "group", "value", "ci_low", "ci_high", "n", "method")


def effects_of(shown: Sequence[str], made_of: Sequence[str]) -> Callable[[Findings], pl.DataFrame]:
    """The summary's rows about some interventions, on datasets that have one of `made_of`."""

    def rows(findings: Findings) -> pl.DataFrame:
        found = select(interventions(findings), intervention=shown, assignment=tuple(PANEL_TITLES))
        made = select(found, intervention=made_of)["dataset"].unique().to_list()
        return select(found, dataset=made)

    return rows


EFFECTS = TableSpec(
    "",
    (Key("intervention", "what is done", {name: intervention_label(name) for name in INTERVENTIONS}), RULE),
    (
        value("Q-Anchored ΔP", points, quantity="delta_p_reference", group=Q_ANCHORED),
        items(quantity="delta_p_reference", group=Q_ANCHORED),
        value("A-Anchored ΔP", points, quantity="delta_p_reference", group=A_ANCHORED),
        items(quantity="delta_p_reference", group=A_ANCHORED),
        value("Q − A", points, quantity="delta_p_reference_difference"),
        value("Q flips", percent, quantity="flip_rate", group=Q_ANCHORED),
        value("A flips", percent, quantity="flip_rate", group=A_ANCHORED),
        value("all flips", percent, quantity="flip_rate", group=None),
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
    rules = rules_in(data)
    return [
        Forest(
            "intervention",
            lines,
            GroupMarks(),
            "ΔP at l*",
            rule_title(rule),
            3.3 if len(rules) < 3 else 2.75,
            {"assignment": rule},
            set_apart=CONTROLS,
            words_once=True,
        )
        for rule in rules
    ]


def _controls(rows: pl.DataFrame) -> Said | None:
    """The strongest control beside the knockout."""
    knockout = effect(rows, "knockout")
    parts = {name: part for name in CONTROLS if (part := size_ratio(effect(rows, name), knockout)) is not None}
    if not parts:
        return None
    most = max(parts, key=lambda name: parts[name].value)
    verdict = all_of([below(part, SMALL_RATIO) for part in parts.values()])
    return Said(verdict, f"{intervention_label(most)}: {whole_percent(parts[most])}, n = {count(parts[most].n)}")


SECTION = SectionSpec(
    slug="interventions",
    title="All interventions",
    rows=effects_of(tuple(INTERVENTIONS), OTHERS),
    asks="What does every intervention do to the two groups at the reference layer?",
    careful="Below the dashed line stand controls, which should do little. The knockout made the groups, so its own Q "
    "− A is partly built in.",
    answer=Answer(
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
