"""A matplotlib figure that a notebook shows as an image, without pyplot and its global state."""

from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

from anchorscope.report.charts.display import STYLE

_DPI = 110  # of a picture in a notebook; files are finer


class ShownFigure(Figure):
    """A `Figure` in every way; only that it knows how to show itself."""

    def _repr_png_(self) -> bytes:
        """The picture, which Jupyter asks for."""
        picture = BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(picture, format="png", dpi=_DPI)
        return picture.getvalue()
