"""One run with all further experiments, its page written once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # pytest's import mode does not make helper modules importable

from report_further_synthetic import make_further

from anchorscope.report.run_page import write_report
from anchorscope.report.statements.claims import judge
from anchorscope.report.statements.all_statements import read


@pytest.fixture(scope="session")
def further():
    """Two datasets, 12 layers, every experiment."""
    return make_further()


@pytest.fixture(scope="session")
def page(further, tmp_path_factory) -> Path:
    """Its report, without figures: those are drawn one by one in other tests."""
    folder = tmp_path_factory.mktemp("further")
    write_report(further, read(further), judge([further]), folder)
    return folder
