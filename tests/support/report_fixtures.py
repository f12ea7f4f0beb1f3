"""One written report for all tests of the folder: drawing is the slow part."""

from pathlib import Path

import pytest

from anchorscope.report.run_page import write_all
from report_shares import run_with_shares


@pytest.fixture(scope="session")
def findings():
    return run_with_shares(datasets=("popqa", "triviaqa"))


@pytest.fixture(scope="session")
def written(findings, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_all(findings, folder)
    return folder
