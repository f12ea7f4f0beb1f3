"""The words and tables about the choices that the groups hang on."""

import polars as pl

from anchorscope.report.experiments.cells import NOTHING, chance, shown
from anchorscope.report.experiments.records import (
    datasets_in,
    estimate_of,
    find,
    present,
    rule_name,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.section import Plate, Section, filled
from anchorscope.report.experiments.sensitivity import SensitivityChart, moved_by, rule_words, rules_tried, seeds_in
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.tables import Table
from anchorscope.report.wording import count, estimate, percent, points

_HEAD = ("Q share", "items", "true among Q", "true among A", "Q share, true − false", "p", "kappa")


def sensitivity_section(findings: Findings) -> Section | None:
    """What moves with the choices."""
    table = statistics(findings, "sensitivity")
    if not table.height:
        return None
    text = (
        "Would other choices have made other groups? The sorting layer is moved, other rules decide what counts as a "
        "flip, other words are cut, and folds and probes are drawn again with other seeds. No new pass of the model is "
        "needed for that.",
        "Kappa says how far the same items are called Q-Anchored; the share of true answers among Q and A says "
        "whether a rule sorts by label. Groups that change with the seed are made by the probes and not by the "
        "model. That two rules agree does not make either of them right.",
    )
    plate = Plate("sensitivity", "Share of Q-Anchored items and agreement for other layers, rules and seeds",
                  "The dotted line is the layer that the run used.")  # fmt: skip
    return Section("sensitivity", "Sensitivity", text, filled(
        ("Other rules, and the plain rule after other cuts; kappa with the plain rule",
         _ways_table(findings, table, "rule")),
        ("Other seeds; kappa with the run's own seed", _ways_table(findings, table, "seed")),
        ("ΔP at l* with other seeds, plain rule", _seeds_table(findings, table)),
        ("The sorting layer moved: the lowest agreement within a quarter of the depth", _moved_table(findings, table)),
    ), (plate,) if SensitivityChart.was_made(findings) else ())  # fmt: skip


def _ways_table(findings: Findings, table: pl.DataFrame, kind: str) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        mine = select(table, dataset=dataset)
        for name in rules_tried(mine) if kind == "rule" else seeds_in(mine):
            way = select(mine, variant=name)
            # A rule is an assignment of its own; a seed was tried with several.
            for rule in [None] if kind == "rule" else rules_in(way):
                here = way if rule is None else select(way, assignment=rule)
                words = rule_words(name) if rule is None else f"{name}, {rule_name(rule)}"
                rows.append((display_name(dataset), words, *_way_cells(here)))
    return Table(("dataset", kind, *_HEAD), tuple(row for row in rows if set(row[2:]) != {NOTHING}), 2)


def _way_cells(rows: pl.DataFrame) -> tuple[str, ...]:
    share = find(rows, quantity="q_share", truth="all")
    true = [find(rows, quantity="true_share", group=group) for group in GROUPS]
    bias = select(rows, quantity="label_bias")
    gap = find(bias) if bias.height else None
    p = chance(bias.row(0, named=True)["p_value"]) if bias.height else NOTHING
    cells = (shown(share, percent), count(share.n) if share else NOTHING, *(shown(one, percent) for one in true))
    return (*cells, shown(gap, percent), p, shown(find(rows, quantity="kappa", truth="all"), estimate))


def _seeds_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table.filter(pl.col("quantity").str.starts_with("delta_p_reference")), truth="all"), []
    for dataset in datasets_in(findings, table):
        for name in seeds_in(select(table, dataset=dataset)):
            mine = select(table, dataset=dataset, variant=name)
            both = [find(mine, quantity="delta_p_reference", group=group) for group in GROUPS]
            gap = find(mine, quantity="delta_p_reference_difference")
            label = "all of them: mean [range]" if name == "seeds" else name
            rows.append((display_name(dataset), label, *(shown(one, points) for one in (*both, gap))))
    return Table(("dataset", "seed", *GROUPS, "Q − A"), tuple(rows), 2)


def _moved_table(findings: Findings, table: pl.DataFrame) -> Table:
    near = findings.n_layers // 4
    offsets = pl.Series("offset", [moved_by(variant) for variant in table["variant"]], dtype=pl.Int64)
    moved = table.with_columns(offsets).filter(pl.col("offset").abs() <= near)
    rows = []
    for dataset in datasets_in(findings, moved):
        for rule in rules_in(moved):
            mine = select(moved, dataset=dataset, assignment=rule)
            kappas = select(mine, quantity="kappa", truth="all").sort("value")
            shares = select(mine, quantity="q_share", truth="all").sort("value")
            cells = [f"{estimate(estimate_of(row))} at {row['variant']}" for row in kappas.head(1).to_dicts()]
            cells += [percent(estimate_of(row)) for one in (shares.head(1), shares.tail(1)) for row in one.to_dicts()]
            if len(cells) == 3:
                tried = len(present(mine, "variant"))
                rows.append((display_name(dataset), rule_name(rule), str(tried), *cells))
    head = ("dataset", "rule", "layers tried", "lowest kappa", "smallest Q share", "largest Q share")
    return Table(head, tuple(rows), 2)
