"""The page of the calibration: how well experiments find pathways that were planted, and worlds whose parts are known.

What counts is the AUC within true and within false answers: an experiment that only knows the label reaches a high AUC
over all answers wherever pathway and label go together, and none within them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.charts.display import save_all
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, Marks
from anchorscope.report.result_rows import TRUTHS, find, present, select
from anchorscope.report.wording import NOTHING, Table, as_percent, count, estimate, number, shown

RECOVERY_SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "rule_or_variant": pl.String,
    "truth": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "method": pl.String,
}
"""Columns of recovery.csv; `truth` is all, true or false."""
CONFUSION_SCHEMA: dict[str, type[pl.DataType]] = {
    "rule": pl.String,
    "truth": pl.String,
    "planted": pl.String,
    "called": pl.String,
    "n": pl.Int64,
}
"""Columns of confusion.csv; `truth` is true or false, and zeros may be left out."""
WORLDS_SCHEMA: dict[str, type[pl.DataType]] = {
    "world": pl.String,
    "items": pl.Int64,
    "quantity": pl.String,
    "part": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "replicas": pl.Int64,
    "passes": pl.Boolean,
    "method": pl.String,
}
"""Columns of worlds.csv. Rows whose quantity is `truth` describe a world; they have no number of items."""
PLANTED = ("question", "answer", "both")
CALLED = (Q_ANCHORED, A_ANCHORED, "misclassified")
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
    areas = areas.with_columns(pl.col("truth").fill_null("all"), line=line)
    return areas.sort(order, maintain_order=True) if areas.height else areas


def _recovery_rows(table: pl.DataFrame) -> pl.DataFrame:
    return _areas(table).rename({"truth": "dataset"})


def _recovery_panels(data: pl.DataFrame) -> list[Forest]:
    marks = {"marker": "o", "markersize": 4.6, "markeredgewidth": 0.0, "linewidth": 1.5}
    styles = {
        name: (name, marks | {"color": _COLOURS[place % len(_COLOURS)]})
        for place, name in enumerate(present(data, "experiment"))
    }
    lines = {name: name for name in present(data, "line")}
    return [Forest("line", lines, Marks("experiment", styles, 0.0), "AUC", "", 2.35, null=0.5, words_once=True)]


RECOVERY_CHART = ChartSpec(
    "recovery",
    "recovery",
    "AUC for the planted pathway of every experiment and rule, for all, true and false answers",
    "Within true and within false answers the label is no help; 0.5 is guessing, below it is the wrong way round.",
    "AUC of an experiment's score: items planted in the question against items planted in the answer. Lines: 95% "
    "intervals.",
    _recovery_rows,
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
        cells = [shown(find(mine, truth=truth), lambda value: estimate(value, 3)) for truth in TRUTHS]
        rows.append((experiment, rule or NOTHING, *cells, count(mine["n"][0])))
    return Table(("experiment", "rule or variant", "AUC, all", "within true", "within false", "items"), tuple(rows), 2)


def confusion_table(counts: pl.DataFrame) -> Table:
    """What each rule calls the items of every planted pathway, for all, true and false answers."""
    rows = []
    for rule in present(counts, "rule"):
        for truth, words in TRUTHS.items():
            kinds = ["true", "false"] if truth == "all" else [truth]
            mine = counts.filter((pl.col("rule") == rule) & pl.col("truth").is_in(kinds))
            for planted in PLANTED:
                calls = [int(select(mine, planted=planted, called=called)["n"].sum()) for called in CALLED]
                if total := sum(calls):
                    cells = [f"{count(n)} ({as_percent(n / total)})" for n in calls]
                    rows.append((rule, words, planted, *cells, count(total)))
    return Table(("rule", "answers", "planted in", *CALLED, "items"), tuple(rows), 3)


def worlds_section(table: pl.DataFrame, about: Mapping[str, str]) -> Section:
    """The truth of every world, and what came out at every number of items."""
    rows = table.filter(pl.col("items").is_not_null())
    sizes = [
        (f"{count(size)} items", _marks_table(select(rows, items=size))) for size in sorted(rows["items"].unique())
    ]
    truths = table.filter(pl.col("items").is_null())
    lines = []
    for world in present(truths, "world"):
        mine = select(truths, world=world)
        parts = (_value(mine, "truth", part, 1) for part in _PARTS)
        lines.append((world, about.get(world, NOTHING), *parts, _value(mine, "auc", "best", 1)))
    worlds = Table(("world", "what it is", *_PARTS, "AUC of the best probe"), tuple(lines), 2)
    return Section("worlds", "Worlds whose parts are known", _WORLDS_TEXT, filled(*sizes, ("The worlds", worlds)))


def _marks_table(rows: pl.DataFrame) -> Table:
    lines = []
    for world in present(rows, "world"):
        mine = select(rows, world=world)
        bias = [_value(mine, "bias", part, 1) for part in _PARTS]
        rates = [_value(mine, name, "all parts", 100) for name in ("covered", "false alarms")]
        replicas = count(select(mine, quantity="bias", part=_PARTS[0])["replicas"][0])
        verdict = "yes" if mine["passes"][0] else "no"
        lines.append((world, _value(mine, "auc", "probe", 1), *bias, *rates, replicas, verdict))
    biases = (f"bias: {part}" for part in _PARTS)
    return Table(("world", "AUC", *biases, "coverage, %", "false alarms, %", "replicas", "passes"), tuple(lines))


def _value(rows: pl.DataFrame, quantity: str, part: str, factor: float) -> str:
    values = select(rows, quantity=quantity, part=part)["value"]
    return number(factor * values[0], 0 if factor > 1 else 2) if len(values) else NOTHING


@dataclass(frozen=True)
class Validation:
    """What the calibration found."""

    title: str
    summary: Sequence[str]
    """Sentences from the numbers; the first is the page's headline."""
    recovery: pl.DataFrame
    confusion: pl.DataFrame
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was run, in display order."""
    command: str = ""
    """The command that repeats it."""
    sections: Sequence[Section] = ()
    """Further parts, shown after the calls."""


def write_validation(validation: Validation, out: Path, progress: Progress | None = None) -> None:
    """Write figures/recovery, validation.html and validation.md."""
    out.mkdir(parents=True, exist_ok=True)
    listener = progress or Silent()
    rows, chart = _recovery_rows(validation.recovery), RECOVERY_CHART
    truths = tuple(truth for truth in TRUTHS if truth in set(rows["dataset"]))
    listener.start("figures", 1)
    save_all([ExperimentFigure(rows, (str(chart.note),), chart, validation.title, 0, truths, {})], out, listener)
    listener.finish()
    headline, *findings = validation.summary or ("",)
    sections = [
        *([Section("findings", "Findings", tuple(findings))] if findings else []),
        Section("how", "How to read it", _HOW_TO_READ),
        Section("recovery", "Recovery", (), filled(("", recovery_table(validation.recovery)))),
        Section("calls", "What the rules call it", (), filled(("", confusion_table(validation.confusion)))),
        *validation.sections,
        *([Section("run", "What was run", facts=validation.facts)] if validation.facts else []),
    ]
    page = SectionsPage(
        "anchorscope calibration",
        f"{validation.title}: are planted pathways found?",
        (),
        sections,
        validation.command,
        card=AnswerCard(validation.title, headline),
        figures=(SectionFigure(chart.name, chart.alt, chart.caption),),
    )
    write_sections_page(page, out, "validation")
