"""The page of a synthetic run, as the tests of the browser open it."""

from pathlib import Path

import pytest

from anchorscope.report import render
from anchorscope.report.findings import Findings


def write_run(findings: Findings, folder: Path) -> Path:
    """The page of a run; figures that a test wants to see must lie in the folder already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "save_all", lambda *figures: None)  # drawing them takes longer than all else
        render.write_all(findings, folder)
    return folder / "report.html"
