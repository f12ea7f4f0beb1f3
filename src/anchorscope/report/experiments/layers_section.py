"""The words and tables about where the cut matters."""

import polars as pl

from anchorscope.report.experiments.cells import difference_cells, shown
from anchorscope.report.experiments.families import DirectEdgesChart
from anchorscope.report.experiments.family_sections import family_plate
from anchorscope.report.experiments.interventions import effects_table
from anchorscope.report.experiments.layers import DISCOVERY_RATE, SMALL_EFFECT, LayersChart, proved
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
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.tables import Table
from anchorscope.report.wording import count, estimate, number, percent, points


def layers_section(findings: Findings) -> Section | None:
    """Single layers, windows, direct edges."""
    table = statistics(findings, "layers")
    direct = DirectEdgesChart.was_made(findings)
    if not table.height and not direct:
        return None
    text: list[str] = []
    plates: list[Plate] = []
    if table.height:
        text += [
            "In which layers is the question read? The key words are cut in one layer alone, or in a window of layers, "
            "and every probe from there on is asked. A probe below the cut cannot see it: those cells are left empty.",
            "A cell is hatched where it cannot be told from zero with the false discovery rate held over the whole "
            f"map, or where it is smaller than {SMALL_EFFECT} standard deviations of the items. Being told from zero "
            "alone says little: whatever is cut lowers items that were chosen because they were called right.",
            "If single layers together explain little of the knockout, the question is read in several layers that "
            "can stand in for each other: then no single layer is the place, however dark its cell. The deepest layer "
            "is picked after the fact; its interval says how firmly.",
        ]
    if LayersChart.was_made(findings):
        plates.append(Plate("layers", "Heat maps of ΔP by cut layer and probe layer, and ΔP at l* by cut layer",
                            "Left and middle: one layer cut. Right: at the reference layer."))  # fmt: skip
    if direct:
        text.append(
            "Direct edges: only the answer's own tokens lose sight of the key words, while the tokens between question "
            "and answer may still read them. What the knockout does beyond that is carried by those tokens in between."
        )
        plates.append(family_plate(DirectEdgesChart))
    tables = filled(
        ("The layer with the lowest ΔP at l*, and what single layers add up to", _depth_table(findings)),
        (f"Cells of the map of single layers with q < {DISCOVERY_RATE} and |d| ≥ {SMALL_EFFECT}",
         _cells_table(findings)),
        ("Windows at the reference layer", _windows_table(findings)),
        ("Direct edges against all later positions",
         effects_table(findings, ("knockout", "direct"), ("direct",))),
    )  # fmt: skip
    return Section("layers", "Where the cut matters", tuple(text), tables, tuple(plates))


def _depth_table(findings: Findings) -> Table:
    table = select(statistics(findings, "layers", "deepest_layer", "share_of_cumulative"), truth="all")
    rows = []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(table):
            for group in GROUPS:
                mine = select(table, dataset=dataset, assignment=rule, group=group)
                deepest, share = (find(mine, quantity=name) for name in ("deepest_layer", "share_of_cumulative"))
                found = deepest or share
                if found:
                    cells = (shown(deepest, lambda e: estimate(e, 0)), shown(share, percent), count(found.n))
                    rows.append((display_name(dataset), rule_name(rule), group, *cells))
    head = ("dataset", "rule", "group", "deepest layer", "sum of single layers, share of the knockout", "items")
    return Table(head, tuple(rows), 3)


def _cells_table(findings: Findings) -> Table:
    table = statistics(findings, "layers", "delta_p").filter(pl.col("probe_layer").is_not_null())
    table = select(table, truth="all", variant="single")
    rows = []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(table):
            for group in GROUPS:
                mine = select(table, dataset=dataset, assignment=rule, group=group)
                if mine.height:
                    told = proved(mine)
                    lowest = mine.sort("value").row(0, named=True)
                    where = f"{points(estimate_of(lowest))} (cut {lowest['layer']}, read {lowest['probe_layer']})"
                    falls = told.filter(pl.col("value") < 0).height
                    cells = (str(mine.height), str(falls), str(told.height - falls), where)
                    rows.append((display_name(dataset), rule_name(rule), group, *cells))
    head = ("dataset", "rule", "group", "cells", "below zero", "above zero", "lowest cell")
    return Table(head, tuple(rows), 3)


def _windows_table(findings: Findings) -> Table:
    table = statistics(findings, "layers", "delta_p_reference", "delta_p_reference_difference")
    table = select(table, truth="all").filter(pl.col("variant") != "single")
    rows = []
    for dataset in datasets_in(findings, table):
        for variant in present(select(table, dataset=dataset), "variant"):
            for rule in rules_in(table):
                mine = select(table, dataset=dataset, variant=variant, assignment=rule)
                for first in sorted(mine["layer"].drop_nulls().unique().to_list()):
                    here = select(mine, layer=first)
                    both = [shown(find(here, quantity="delta_p_reference", group=group), points) for group in GROUPS]
                    gap = difference_cells(here, "delta_p_reference", points)
                    label = f"{variant}, from layer {number(first, 0)}"
                    rows.append((display_name(dataset), rule_name(rule), label, *both, *gap))
    return Table(("dataset", "rule", "cut", *GROUPS, "Q − A", "p", "d"), tuple(rows), 3)
