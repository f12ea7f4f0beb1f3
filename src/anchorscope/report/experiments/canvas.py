"""Figures whose panels differ in size or have long labels: the shared sheet with its one large panel cut into a grid.

Title, legend and notes stay where the other figures have them. Sizes are inches, so that nothing is clipped however
many rows there are; many rows are made lower, so that a page can hold them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.report.charts.drawing import Legend, Sheet, sheet

_TALLEST = 16.0  # inches that the panels of a figure share
_LOWEST_PANEL = 0.85


@dataclass(frozen=True)
class Grid:
    """Panels in rows and columns, in inches."""

    widths: Sequence[float]
    """Of each column of panels."""
    heights: Sequence[float]
    """Of each row."""
    labels: float = 0.0
    """Room left of the first column, beside what every figure has."""
    gap_x: Sequence[float] | float = 0.42
    """Between columns; one for all or one each."""
    gap_y: float = 0.78
    """Between rows, for the x labels above and the titles below."""
    right: float = 0.0
    """Room right of the last column, for a colour bar."""
    foot: float = 0.0
    """Room under the last row, for long labels."""

    @property
    def gaps(self) -> list[float]:
        """The gap before every column but the first."""
        between = len(self.widths) - 1
        return [self.gap_x] * between if isinstance(self.gap_x, int | float) else list(self.gap_x)


def rows_that_fit(n_rows: int, height: float, gap: float) -> list[float]:
    """Heights of so many equal rows: as wished, or lower where they would not fit a page."""
    room = _TALLEST / max(1, n_rows) - gap
    return [max(_LOWEST_PANEL, min(height, room))] * n_rows


def canvas(title: str, grid: Grid, legend: Legend) -> Sheet:
    """Panels that share no axes, with title, legend and notes around them."""
    width = grid.labels + sum(grid.widths) + sum(grid.gaps) + grid.right
    height = sum(grid.heights) + (len(grid.heights) - 1) * grid.gap_y + grid.foot
    page = sheet(title, (1, 1), (width, height), legend)
    whole = page.axes[0][0]
    box = whole.get_position()
    whole.remove()
    figure_width, figure_height = page.figure.get_size_inches()
    rows: list[list[Axes]] = []
    top = box.y1 * figure_height
    for tall in grid.heights:
        left, row = box.x0 * figure_width + grid.labels, []
        for wide, gap in zip(grid.widths, [*grid.gaps, 0.0], strict=True):
            place = (left / figure_width, (top - tall) / figure_height, wide / figure_width, tall / figure_height)
            row.append(page.figure.add_axes(place))
            left += wide + gap
        rows.append(row)
        top -= tall + grid.gap_y
    return Sheet(page.figure, rows)


def beside(figure: Figure, axes: Axes, gap: float, width: float) -> Axes:
    """A narrow panel right of another one and as high, for a colour bar."""
    box, wide = axes.get_position(), figure.get_size_inches()[0]
    return figure.add_axes((box.x1 + gap / wide, box.y0, width / wide, box.height))
