"""Curves over layers in letters: a column for every layer, a sign for every curve, numbers at both edges."""

import math
from collections.abc import Sequence

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
