"""One written report for all tests of the folder: drawing is the slow part."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode does not make helper modules importable

from report_synthetic import make_findings

from anchorscope.report.render import write_all


@pytest.fixture(scope="session")
def findings():
    return make_findings()


@pytest.fixture(scope="session")
def written(findings, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_all(findings, folder)
    return folder
