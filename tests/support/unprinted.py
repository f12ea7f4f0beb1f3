"""Whole runs whose figures are drawn and not printed: PNG, SVG and PDF of each take most of a small run's time.

Every figure is still made from the run's own numbers and drawn, and the page is written. For tests of runs that open no
picture, or one of many.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from anchorscope.progress import Progress
from anchorscope.report import run_page
from anchorscope.report.panel_figure import ExperimentFigure


@contextmanager
def unprinted(*printed: str) -> Iterator[None]:
    """The figures of runs inside are drawn and not printed, but for those that are named."""

    def draw(
        figures: Sequence[ExperimentFigure], out: Path, progress: Progress
    ) -> None:
        for figure in figures:
            if figure.name in printed:
                figure.save(out)
            else:
                figure.plot()
            progress.advance(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_page, "save_all", draw)
        yield
