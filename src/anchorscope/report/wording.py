"""Numbers as the report writes them: a real minus sign, intervals in brackets, "not available" for what is missing.
Tables of such words stand here too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.artefacts.schema import layer_ranges
from anchorscope.report.verdicts import has_interval
from anchorscope.stats.estimate import Estimate

MISSING = "not available"


def number(value: float, digits: int) -> str:
    """A number with a real minus sign, and no minus before a rounded zero."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def estimate(
    measured: Estimate | None, digits: int = 2, scale: float = 1.0, unit: str = ""
) -> str:
    """value [low, high], scaled; the unit stands after the value."""
    if measured is None:
        return MISSING
    text = number(measured.value * scale, digits) + unit
    if not has_interval(measured):
        return text
    return f"{text} [{number(measured.ci_low * scale, digits)}, {number(measured.ci_high * scale, digits)}]"


def points(measured: Estimate | None) -> str:
    """A ΔP in percentage points."""
    return estimate(measured, 1)


def percent(measured: Estimate | None) -> str:
    """A share as a percentage."""
    return estimate(measured, 1, 100.0, "%")


def as_percent(value: float) -> str:
    """48%."""
    return f"{number(100 * value, 0)}%"


def count(value: object) -> str:
    """A whole number with commas between thousands, or "not available"."""
    return f"{value:,}" if isinstance(value, int) else MISSING


def parameters_text(parameters: int) -> str:
    """A model's size as people say it: 135 M, 1.2 B."""
    if parameters <= 0:
        return "size unknown"
    billions = parameters / 1e9
    if billions >= 0.9995:
        return f"{number(billions, 1 if billions < 9.95 else 0)}\u00a0B"
    return (
        f"{number(parameters / 1e6, 0)}\u00a0M"
        if parameters >= 1e6
        else f"{number(parameters / 1e3, 0)}\u00a0k"
    )


def capitalised(text: str) -> str:
    """With a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def layer_names(layers: Sequence[int]) -> str:
    """For example "layer 4", "layers 20–29", "layers 2, 5 and 20–29"."""
    return f"layer{'s' if len(layers) > 1 else ''} {listing(layer_ranges(layers))}"


def listing(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Table:
    """A table of text."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    """The first columns that are words, set to the left; the others are numbers."""


NOTHING = "–"
"""In a cell that has no number; the reason stands under "Not available" or in the text."""

Show = Callable[[Estimate | None], str]


def shown(measured: Estimate | None, show: Show) -> str:
    """A number in a cell, or a dash."""
    return NOTHING if measured is None else show(measured)


def p_value_cell(p: float | None, q: float | None = None) -> str:
    """A p-value; the one with the false discovery rate controlled where there is one."""
    value = p if q is None or math.isnan(q) else q
    if value is None or math.isnan(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else number(value, 3)
