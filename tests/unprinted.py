"""Whole runs whose figures are drawn and not printed: PNG, SVG and PDF of each take most of a small run's time.

Every figure is still made from the run's own numbers and drawn, and the page is written, without pictures. For tests of
runs that open no picture. Imported by putting this folder on `sys.path`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from anchorscope.progress import Progress
from anchorscope.report import render
from anchorscope.report.charts.display import Display


def _draw(figures: Sequence[Display], out: Path, progress: Progress) -> None:
    for figure in figures:
        figure.plot()
        progress.advance(1)


@contextmanager
def unprinted() -> Iterator[None]:
    """The figures of runs inside are drawn and not printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "save_all", _draw)
        yield
