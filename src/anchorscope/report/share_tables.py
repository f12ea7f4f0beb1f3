"""The tables of the parts: over the band, layer by layer, and the numbers beside them."""

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.shares import (
    CONTROLS,
    NEEDS,
    PARTS,
    band_layers,
    results_of,
    share_at,
    share_rows,
    truth_readers,
)
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, p_value_cell

_CUTS = {"knockout": "key words cut"} | CONTROLS
_QUANTITIES = {
    "above_random": "{}: more than under random words",
    "floor": "not in the clean state of another site",
    "displacement": "how far the cut moves states: {}",
    "directions": "principal directions of every view",
}


def share_table(findings: Findings) -> Table:
    """The parts over the band, under the knockout and every control."""
    rows = []
    for cut, cut_words in _CUTS.items():
        for part, part_words in (PARTS | NEEDS).items():
            shares = [share_at(findings, name, cut, part) for name in findings.datasets]
            if any(shares):
                cells = (NOTHING if share is None else estimate(share) for share in shares)
                rows.append((cut_words, part_words, *cells))
    heads = [f"{display_name(name)}, layers {band_layers(findings, name)}" for name in findings.datasets]
    return Table(("", "share of the evidence", *heads), tuple(rows), 2)


def ladder_table(findings: Findings) -> Table:
    """AUC of the probe, and of what reads truth without the model's understanding."""
    readers = {dataset: truth_readers(findings, dataset) for dataset in findings.datasets}
    names = dict.fromkeys(name for areas in readers.values() for name in areas)
    rows = [
        (name, *(estimate(areas[name], 3) if name in areas else NOTHING for areas in readers.values()))
        for name in names
    ]
    return Table(("AUC", *(display_name(name) for name in readers)), tuple(rows))


def tests_table(findings: Findings) -> Table:
    """The numbers beside the parts, one per row."""
    rows = []
    for dataset in findings.datasets:
        for quantity, words in _QUANTITIES.items():
            for result in results_of(findings, dataset, quantity):
                value = count(round(result.estimate.value)) if quantity == "directions" else estimate(result.estimate)
                p = p_value_cell(result.p_value) if quantity in ("above_random", "floor") else NOTHING
                what = words.format((PARTS | NEEDS).get(result.group, result.intervention))
                rows.append((display_name(dataset), what, value, p, count(result.estimate.n)))
    return Table(("dataset", "quantity", "value", "p", "items"), tuple(rows), 2)


def layers_table(findings: Findings) -> Table:
    """The parts layer by layer: the numbers behind the chart."""
    columns = {words: ("knockout", part) for part, words in PARTS.items()}
    columns |= {f"{words}, {CONTROLS['random']}": ("random", part) for part, words in NEEDS.items()}
    lines = []
    for dataset in findings.datasets:
        cells = [
            {row["layer"]: _with_interval(row) for row in share_rows(findings, dataset, *key).iter_rows(named=True)}
            for key in columns.values()
        ]
        lines += [
            (display_name(dataset), str(layer), *(column.get(layer, NOTHING) for column in cells))
            for layer in sorted(set().union(*cells))
        ]
    return Table(("dataset", "layer", *columns), tuple(lines))


def _with_interval(row: dict[str, float | None]) -> str:
    share, *ends = (row[name] for name in ("share", "ci_low", "ci_high"))
    known = [number(end, 2) for end in ends if end is not None]
    return number(share or 0.0, 2) + (f" [{', '.join(known)}]" if len(known) == 2 else "")
