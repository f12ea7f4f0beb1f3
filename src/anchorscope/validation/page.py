"""The page of the calibration: how well experiments find pathways that were planted, and worlds whose parts are known.

What counts is the AUC within true and within false answers: an experiment that only knows the label reaches a high AUC
over all answers wherever pathway and label go together, and none within them.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import polars as pl

from anchorscope.progress import Progress
from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.findings import TRUTHS, find, present, select
from anchorscope.report.page import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, save_all
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, shown

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#9467bd", "#8c564b")
_PARTS = ("together", "question", "answer", "either")
_HOW_TO_READ = (
    "The model of this page was trained on a made-up language, so the pathway of every item is known: its truth can be "
    "known only from the question, only from the answer, or from both. Truth and pathway are crossed. AUC: the chance "
    "that an item planted in the question scores above one planted in the answer: 1 is perfect, 0.5 guessing. The "
    "columns within true and within false answers decide: a rule that only follows the label does well on neither.",
    "A rule that fails here should not be trusted elsewhere; one that succeeds has passed an easy test.",
)
_WORLDS_TEXT = (
    "States are drawn without a model, with evidence for the label in the question, in the answer or only in both "
    "together, so the parts of an infinite sample are known. A world passes where every part is off by at most 0.03 on "
    "average, intervals hold the truth at least 93 times in 100, and what is not there is claimed at most 5 times in "
    "100. Intervals of these rates are in worlds.csv; ask for more replicas with --replicas.",
)


def _areas(table: pl.DataFrame) -> pl.DataFrame:
    """The AUCs, with a line's name per experiment and rule; the lines of an experiment together."""
    areas = table.filter((pl.col("quantity") == "auc") & pl.col("value").is_finite())
    line = pl.concat_str("experiment", "rule_or_variant", separator=": ", ignore_nulls=True)
    order = pl.col("experiment").replace_strict({name: n for n, name in enumerate(present(areas, "experiment"))})
    areas = areas.with_columns(line=line, dataset=pl.col("truth").fill_null("all"))
    return areas.sort(order, maintain_order=True) if areas.height else areas


def _recovery_panels(data: pl.DataFrame) -> list[Forest]:
    marks = {"marker": "o", "markersize": 4.6, "markeredgewidth": 0.0, "linewidth": 1.5}
    styles = {
        name: marks | {"color": colour}
        for name, colour in zip(present(data, "experiment"), cycle(_COLOURS), strict=False)
    }
    lines = {name: name for name in present(data, "line")}
    return [Forest("line", lines, "AUC", "", 2.35, by="experiment", marks=styles, offset=0.0, null=0.5)]


RECOVERY_CHART = ChartSpec(
    "recovery",
    "recovery",
    "AUC for the planted pathway of every experiment and rule, for all, true and false answers",
    "Within true and within false answers the label is no help; 0.5 is guessing, below it is the wrong way round.",
    "AUC of an experiment's score: items planted in the question against items planted in the answer. Lines: 95% "
    "intervals.",
    _areas,
    _recovery_panels,
    share="x",
    height=lambda data: 0.4 + 0.235 * max(3, data["line"].n_unique()),
    labels=lambda data: max(0.3, 0.082 * max(map(len, data["line"]), default=0) - 0.5),
    gap=0.2,
    dataset_words=lambda truth: TRUTHS[truth],
    legend_columns=5,
)


def recovery_table(table: pl.DataFrame) -> Table:
    """AUC for the planted pathway: all answers, true ones, false ones."""
    areas = _areas(table)
    rows = []
    for experiment, rule in areas.select("experiment", "rule_or_variant").unique(maintain_order=True).iter_rows():
        mine = select(areas, experiment=experiment, rule_or_variant=rule)
        cells = [shown(find(mine, dataset=truth), lambda value: estimate(value, 3)) for truth in TRUTHS]
        rows.append((experiment, rule or NOTHING, *cells, count(mine["n"][0])))
    return Table(("experiment", "rule or variant", "AUC, all", "within true", "within false", "items"), tuple(rows), 2)


def worlds_section(table: pl.DataFrame, about: Mapping[str, str]) -> Section:
    """What came out of every world at every number of items."""
    tables = []
    for size in sorted(table["items"].drop_nulls().unique()):
        rows, lines = select(table, items=size), []
        for world in present(rows, "world"):
            mine = select(rows, world=world)
            bias = [_value(mine, "bias", part, 1) for part in _PARTS]
            rates = [_value(mine, name, "all parts", 100) for name in ("covered", "false alarms")]
            replicas = count(select(mine, quantity="bias", part=_PARTS[0])["replicas"][0])
            verdict = "yes" if mine["passes"][0] else "no"
            about_world = (world, about.get(world, NOTHING), _value(mine, "auc", "probe", 1))
            lines.append((*about_world, *bias, *rates, replicas, verdict))
        biases = (f"bias: {part}" for part in _PARTS)
        head = ("world", "what it is", "AUC", *biases, "coverage, %", "false alarms, %", "replicas", "passes")
        tables.append((f"{count(size)} items", Table(head, tuple(lines), 2)))
    return Section("worlds", "Worlds whose parts are known", _WORLDS_TEXT, filled(*tables))


def _value(rows: pl.DataFrame, quantity: str, part: str, factor: float) -> str:
    values = select(rows, quantity=quantity, part=part)["value"]
    return number(factor * values[0], 0 if factor > 1 else 2) if len(values) else NOTHING


def write_validation(
    out: Path,
    summary: Sequence[str],
    recovery: pl.DataFrame,
    worlds: Section,
    facts: Mapping[str, str],
    command: str,
    progress: Progress,
) -> None:
    """Write figures/recovery, validation.html and validation.md; the first sentence of the summary is the headline."""
    areas, chart, title = _areas(recovery), RECOVERY_CHART, "The planted model"
    truths = tuple(truth for truth in TRUTHS if truth in set(areas["dataset"]))
    save_all([ExperimentFigure(areas, (chart.note,), chart, title, 0, truths)], out, progress)
    headline, *findings = summary
    page = SectionsPage(
        "anchorscope calibration",
        f"{title}: are planted pathways found?",
        AnswerCard(title, headline),
        (),
        [
            Section("how", "How to read it", _HOW_TO_READ),
            Section("recovery", "Recovery", tuple(findings), filled(("", recovery_table(recovery)))),
            worlds,
            Section("run", "What was run", facts=facts, code=command),
        ],
        (SectionFigure(chart.name, chart.alt, chart.caption),),
    )
    write_sections_page(page, out, "validation")
