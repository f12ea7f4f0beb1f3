"""The tables of the page, as plain text in cells: both templates (HTML and Markdown) draw the same ones."""

from collections.abc import Callable, Sequence

from anchorscope.report.detection import paper
from anchorscope.report.detection.averages import mean_of_datasets, mean_value
from anchorscope.report.detection.context import DetectionContext
from anchorscope.report.detection.control_readings import LABEL_NOISE, PERMUTED
from anchorscope.report.detection.detection_reading import DIGITS, signed, signed_estimate
from anchorscope.report.detection.results import (
    AUTO,
    BOTH,
    CONFIDENCE,
    METRICS,
    PROBE,
    DetectionResults,
    entry_of,
    shown_place,
)
from anchorscope.report.detection.tested_readings import RANDOM_CUT
from anchorscope.report.palette import display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, shown
from anchorscope.stats.estimate import Estimate

_CONTROLS = {
    PERMUTED: "labels tossed: AUROC",
    RANDOM_CUT: "knockout − random cut",
    LABEL_NOISE: "grader's error: AUROC",
}
_REPORTED = ("auroc", "auprc", "brier", "ece", "e-aurc", "prr", "accuracy@50", "accuracy@80", "accuracy@90")


def _auroc(found: Estimate | None) -> str:
    return shown(found, lambda one: estimate(one, DIGITS))


def auroc_table(results: DetectionResults) -> Table:
    """Every detector on every dataset, tested on what it learned from; and what it gains over the two to beat."""
    cells = results.in_domain
    tested = [f"{shown_place(cell.test)}, n = {count(results.n_tested(cell))}" for cell in cells]
    head = ("detector", "passes", *tested, f"over {PROBE}", f"over {BOTH}")
    rows = []
    for name in results.names:
        values = [results.value(name, cell) for cell in cells]
        if any(value is not None for value in values):
            rows.append(
                (
                    name,
                    _passes(results, name),
                    *map(_auroc, values),
                    *(_gain(results, name, against) for against in (PROBE, BOTH)),
                )
            )
    return Table(head, tuple(rows))


def _gain(results: DetectionResults, name: str, against: str) -> str:
    from_each = (
        []
        if name == against
        else [one for cell in results.in_domain if (one := results.difference(name, against, cell)) is not None]
    )
    return shown(mean_of_datasets(from_each), signed_estimate)


def metrics_table(results: DetectionResults, detectors: Sequence[str], prevalence: str) -> Table:
    """Every metric of a few detectors at one prevalence, dataset by dataset."""
    rows = []
    for cell in results.in_domain:
        for name in detectors:
            values = [results.value(name, cell, metric, prevalence) for metric in _REPORTED]
            if any(value is not None for value in values):
                cells = [NOTHING if one is None else number(one.value, DIGITS) for one in values]
                rows.append((shown_place(cell.test), name, *cells))
    return Table(("dataset", "detector", *(METRICS[metric] for metric in _REPORTED)), tuple(rows), 2)


def prompt_table(results: DetectionResults) -> Table:
    """The shift to another prompt."""
    names = [name for name in (CONFIDENCE, PROBE, BOTH, "mop", "counterfactual", AUTO) if name in results.names]
    rows = tuple(
        (shown_place(cell.train), shown_place(cell.test), *(_auroc(results.value(name, cell)) for name in names))
        for cell in results.prompted
    )
    return Table(("learned from", "tested on", *names), rows, 2)


def paper_table(results: DetectionResults) -> Table:
    """The paper's table and ours, with what MoP and PR gain over the probe."""
    ours = [name for name in results.datasets if any(cell.test == name for cell in results.in_domain)]
    columns = [*paper.DATASETS, *(name for name in ours if name not in paper.DATASETS)]
    rows = [*_paper_rows(columns), *_own_rows(results, columns)]
    return Table(("whose", "detector", *map(display_name, columns), "mean", "over its probe"), tuple(rows), 2)


def _paper_rows(columns: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    for model, table in paper.TABLE.items():
        probe = sum(table[paper.PROBE]) / len(paper.DATASETS)
        for name in ("Logits-min", paper.PROBE, paper.MOP, paper.PR):
            values = dict(zip(paper.DATASETS, table[name], strict=True))
            mean = sum(values.values()) / len(values)
            gain = NOTHING if name == paper.PROBE else signed((mean - probe) / 100)
            cells = [number(values[one] / 100, DIGITS) if one in values else NOTHING for one in columns]
            rows.append((f"paper, {model}", name, *cells, number(mean / 100, DIGITS), gain))
    return rows


def _own_rows(results: DetectionResults, columns: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    for name in (CONFIDENCE, PROBE, "mop", "pr-attention", BOTH, "counterfactual", AUTO):
        if name not in results.names:
            continue
        cells = {cell.test: results.value(name, cell) for cell in results.in_domain}
        # Without intervals, as the paper's stand: these are in the table of all detectors.
        values = [NOTHING if (one := cells.get(column)) is None else number(one.value, DIGITS) for column in columns]
        rows.append(
            ("here", name, *values, _auroc(mean_value(results, name, results.in_domain)), _gain(results, name, PROBE))
        )
    return rows


def controls_table(results: DetectionResults) -> Table:
    """Every row of controls.csv, a detector and a dataset each."""
    kinds = [kind for kind in _CONTROLS if kind in set(results.controls["control"])]
    show: dict[str, Callable[[Estimate], str]] = {RANDOM_CUT: signed_estimate}
    rows = []
    for name in results.names:
        for cell in results.in_domain:
            found = {kind: results.control(kind, name, cell.train) for kind in kinds}
            if any(one is not None for one in found.values()):
                cells = [NOTHING if one is None else show.get(kind, _auroc)(one) for kind, one in found.items()]
                rows.append((name, shown_place(cell.train), *cells))
    return Table(("detector", "dataset", *(_CONTROLS[kind] for kind in kinds)), tuple(rows), 2)


def catalogue_table(results: DetectionResults, context: DetectionContext) -> Table:
    """What each detector is; of those that are not here, why."""
    rows = [
        (name, entry_of(name).about, _passes(results, name), context.bundles.get(name, NOTHING))
        for name in results.names
    ]
    return Table(("detector", "what it is", "passes", "saved in"), tuple(rows), 2)


def datasets_table(context: DetectionContext) -> Table:
    """The answers behind the numbers."""
    rows = tuple(
        (
            display_name(one.name),
            count(one.n_used),
            count(one.n_true),
            count(one.n_graded),
            f"{number(100 * one.natural_prevalence, 1)}\u00a0%",
            "tested only" if one.target_only else "learned from and tested",
        )
        for one in context.datasets
    )
    return Table(("dataset", "used", "true", "graded in all", "true among these", "role"), rows)


def _passes(results: DetectionResults, name: str) -> str:
    return count(results.passes(name)) if results.passes(name) is not None else NOTHING
