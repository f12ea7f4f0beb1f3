"""One item of a run on a page of the terminal: what the explorer of report.html shows, in letters.

Questions and answers are other people's text: what would steer the terminal is shown as a sign and does nothing, and
square brackets are never read as markup. Where nothing can be underlined (a pipe, a plain terminal), the exact words
stand in brackets.
"""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anchorscope.catalogue import intervention_label
from anchorscope.cli.terminal import harmless, page
from anchorscope.report.findings import Findings
from anchorscope.report.items.item_records import Effect, ItemRecord
from anchorscope.report.palette import display_name
from anchorscope.report.wording import number

_ROWS = 9
_EDGE = 8  # columns before the plot: the number of the row and its axis
_STEPS = (1, 2, 5, 10, 20, 25)
_LEAST = 20.0
"""Points that the plot spans at least, so that noise does not look like a cliff."""


def layer_plot(curves: Sequence[tuple[str, Sequence[float]]], mark: int | None, width: int) -> list[str]:
    """Lines of text, at most `width` columns where that is possible. The first curve lies on top; `mark` is l*.

    Where a terminal is too narrow for all layers, a column stands for the mean of several.
    """
    layers = len(curves[0][1])
    room = max(10, width - _EDGE - 1)
    each = math.ceil(layers / room)
    spread = 2 if each == 1 and 2 * layers <= room else 1
    columns = [(sign, _binned(values, each)) for sign, values in curves]
    rows = _row_values([value for _, values in columns for value in values])
    step = rows[0] - rows[1]
    sheet = [[" "] * (spread * len(columns[0][1])) for _ in rows]
    zero = rows.index(0.0)
    sheet[zero] = ["┄"] * len(sheet[zero])
    for sign, values in reversed(columns):
        for column, value in enumerate(values):
            if math.isfinite(value):
                sheet[round((rows[0] - value) / step)][spread * column] = sign
    lines = [f"{number(value, 0):>6} ┤" + "".join(row).rstrip() for value, row in zip(rows, sheet, strict=True)]
    return [*lines, *_foot(len(columns[0][1]), each, spread, mark)]


def _binned(values: Sequence[float], each: int) -> list[float]:
    parts = [values[start : start + each] for start in range(0, len(values), each)]
    return [sum(part) / len(part) for part in parts]


def _row_values(values: Sequence[float]) -> list[float]:
    """Heights from top to bottom, zero among them, in round steps."""
    known = [0.0, *filter(math.isfinite, values)]
    low, high = min(known), max(known)
    span = max(high - low, _LEAST)
    step = next((size for size in _STEPS if size * (_ROWS - 1) >= span), _STEPS[-1])
    above, below = math.ceil(high / step), math.ceil(-low / step)
    return [float(step * place) for place in range(max(above, 1), -max(below, 1) - 1, -1)]


def _foot(columns: int, each: int, spread: int, mark: int | None) -> list[str]:
    """The numbers of the layers, and where l* is."""
    numbers = [" "] * (columns * spread + 8)
    for column in range(0, columns, 5):
        for place, letter in enumerate(str(column * each), start=column * spread):
            numbers[place] = letter
    lines = [" " * (_EDGE - 1) + "└" + "─" * (columns * spread), " " * _EDGE + "".join(numbers).rstrip() + "  layer"]
    if mark is not None:
        lines.insert(1, " " * (_EDGE + mark // each * spread) + "↑ l*")
    return lines


_EXACT, _QUIET, _NAME = "bold underline", "dim", "bold"
_BRACKETS = ("⟦", "⟧")
_MOST_ACCEPTED = 12


def print_item(item: ItemRecord, findings: Findings) -> None:
    """Everything that is known of the item."""
    with page() as console:
        _write(item, findings, console)


def _write(item: ItemRecord, findings: Findings, console: Console) -> None:
    styled = console.is_terminal and console.color_system is not None
    about = f"{findings.model}, {findings.site} at {findings.position}"
    console.print(Text(harmless(f"{display_name(item.dataset)} · {item.item_id}"), style=_NAME))
    console.print(Text(harmless(about + (", RANDOM WEIGHTS" if findings.random_weights else "")), style=_QUIET))
    console.print()
    console.print(Padding(_question(item, styled), (0, 2)))
    console.print()
    console.print(_facts(item))
    if not item.effects:
        console.print(Text(f"\nThe item was not used ({item.status}): nothing was cut, and no probe scored it."))
        return
    console.print(Text("\nΔP per layer: points of probability that the true label gains or loses", style=_NAME))
    for line in _plot(item, console.width):
        console.print(Text(line), no_wrap=True, crop=True)
    console.print()
    console.print(_effects(item.effects))
    if item.further:
        console.print(Text("\nfurther experiments", style=_NAME))
        console.print(_further(item))


def _question(item: ItemRecord, styled: bool) -> Text:
    """The question with its exact words underlined, or in brackets."""
    question, text, written = harmless(item.question), Text(), 0
    for start, end in item.marks:
        start = max(start, written)
        if start >= end:
            continue
        word = question[start:end]
        text.append(question[written:start])
        text.append(word if styled else word.join(_BRACKETS), style=_EXACT)
        written = end
    return text.append(question[written:])


def _facts(item: ItemRecord) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style=_QUIET)
    table.add_column(overflow="fold")
    for name, value in _fact_rows(item):
        table.add_row(Text(name), Text(value))
    return table


def _fact_rows(item: ItemRecord) -> Iterator[tuple[str, str]]:
    verdict = {True: "true", False: "false"}.get(item.truthful, "not graded")  # type: ignore[arg-type]
    yield "answer", f"{harmless(item.answer)}   ({verdict})"
    accepted = " | ".join(harmless(text) for text in item.accepted[:_MOST_ACCEPTED])
    more = len(item.accepted) - _MOST_ACCEPTED
    yield "accepted", accepted + (f" | and {more} more" if more > 0 else "")
    for name, value in (("subject", item.subject), ("relation", item.relation)):
        if value:
            yield name, harmless(value)
    if item.question_share is not None:
        value, low, high = (number(100 * end, 0) for end in item.question_share)
        call = f"; {item.pathway_call}" if item.pathway_call else ""
        yield "question share", f"{value} % [{low}, {high}] of its evidence, an estimate for one item{call}"
    if item.pathways:
        yield "pathway", ", ".join(f"{pathway} ({rule})" for rule, pathway in item.pathways.items())
    if item.reference_layer is not None:
        fold = "" if item.fold is None else f" (fold {item.fold})"
        before = item.probability_before
        says = "" if before is None else f", where the probe gives “true” {_share(before)}"
        yield "l*", f"layer {item.reference_layer}{fold}{says}"
    if item.confidence_mean is not None and math.isfinite(item.confidence_mean):
        yield "confidence", f"{_share(math.exp(item.confidence_mean))} per token of the answer (geometric mean)"
    yield "status", item.status


def _share(value: float) -> str:
    return f"{number(100 * value, 1)} %"


def _plot(item: ItemRecord, width: int) -> list[str]:
    by_name = {effect.intervention: effect for effect in item.effects}
    main = by_name.get("knockout", item.effects[0])
    drawn = [("●", main.intervention, main.delta_p)]
    if "random" in by_name and main.intervention != "random":
        drawn.append(("·", "random", by_name["random"].delta_p))
    lines = layer_plot([(sign, values) for sign, _, values in drawn], item.reference_layer, width)
    return [*lines, *(f"        {sign} {intervention_label(name)}" for sign, name, _ in drawn)]


def _effects(effects: Sequence[Effect]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_edge=False)
    table.add_column("what was done", overflow="fold")
    for name in ("tokens", "ΔP at l*"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for effect in effects:
        donors = f" ({effect.runs} donors)" if effect.runs > 1 else ""
        delta = "–" if effect.delta_p_reference is None else number(effect.delta_p_reference, 1)
        cut = number(effect.n_cut, 0 if effect.n_cut == int(effect.n_cut) else 1)
        table.add_row(Text(intervention_label(effect.intervention) + donors), Text(cut), Text(delta), _verdict(effect))
    return table


def _verdict(effect: Effect) -> Text:
    if not effect.flips:
        return Text("stays")
    return Text("flips" if effect.runs == 1 else f"flips in {effect.flips} of {effect.runs}", style=_NAME)


def _further(item: ItemRecord) -> Table:
    """One line per experiment and variant."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style=_QUIET)
    table.add_column(overflow="fold")
    lines: dict[tuple[str, str], list[str]] = {}
    for one in item.further:
        shown = number(one.value, 0 if one.value.is_integer() else 3) if math.isfinite(one.value) else "–"
        lines.setdefault((one.experiment, one.variant or ""), []).append(f"{one.quantity.replace('_', ' ')} {shown}")
    for (experiment, variant), told in lines.items():
        table.add_row(Text(harmless(f"{experiment} {variant}".rstrip())), Text(", ".join(told)))
    return table
