"""A square of coloured cells: values around zero, cells that prove nothing hatched, cells that do not exist empty."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from anchorscope.report.palette import INK

MAP = "RdBu"
"""Red below zero, blue above it: told apart by the colour-blind; in grey, cells above zero carry a plus."""
NO_CELL = "#f1f1f1"
_HATCH: dict[str, Any] = {"hatch": "//////", "facecolor": "none", "edgecolor": "#8c8c8c", "linewidth": 0.0}
_MOST_PLUSES = 1600  # cells of a map in which a plus can still be seen

Floats = NDArray[np.floating]


def draw_heat(axes: Axes, values: Floats, not_significant: NDArray[np.bool_], reach: float) -> AxesImage:
    """Cells [row, column], row 0 at the bottom, a plus in those above zero; `reach` is at either end of the colours."""
    scale = Normalize(-reach, reach)
    image = axes.imshow(
        np.ma.masked_invalid(values),
        cmap=colormaps[MAP],
        norm=scale,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_facecolor(NO_CELL)
    axes.grid(False)
    hidden = np.argwhere(not_significant & np.isfinite(values))
    if len(hidden):
        # One shape for all cells: thousands of small ones would make the page heavy.
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) - 0.5
        squares = (hidden[:, None, ::-1] + corners).reshape(-1, 2)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(hidden)
        axes.add_patch(PathPatch(Path(squares, codes), **_HATCH))
    rising = np.argwhere(~not_significant & (np.nan_to_num(values) > 0))
    if len(rising) and values.size <= _MOST_PLUSES:
        axes.plot(
            rising[:, 1], rising[:, 0], linestyle="none", marker="+", markersize=3.2, markeredgewidth=0.7, color=INK
        )
    return image


def hatch_handle(text: str) -> Patch:
    """Legend entry of cells that prove nothing."""
    return Patch(label=text, **_HATCH)


def symmetric_limit(values: Floats, least: float) -> float:
    """The largest size of a value, so that zero is in the middle of the colours."""
    known = np.abs(values[np.isfinite(values)])
    return max(least, float(known.max())) if len(known) else least
