"""One run with all further experiments, its page written once."""

from pathlib import Path

import pytest

from anchorscope.report.page import Section
from anchorscope.report.run_page import experiment_sections
from report_further_synthetic import make_further, write_page_of


@pytest.fixture(scope="session")
def further():
    """Two datasets, 12 layers, every experiment."""
    return make_further()


@pytest.fixture(scope="session")
def sections(further) -> list[Section]:
    return experiment_sections(further)


@pytest.fixture(scope="session")
def page(further, tmp_path_factory) -> Path:
    """Its report, without figures: those are drawn one by one in other tests."""
    return write_page_of(further, tmp_path_factory.mktemp("further"))
