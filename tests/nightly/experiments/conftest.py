"""One run with all further experiments."""

import pytest

from anchorscope.report.page import Section
from anchorscope.report.run_page import experiment_sections
from engine_fixtures import short_sighted as short_sighted
from report_further_synthetic import make_further


@pytest.fixture(scope="session")
def further():
    """Two datasets, 12 layers, every experiment."""
    return make_further()


@pytest.fixture(scope="session")
def sections(further) -> list[Section]:
    return experiment_sections(further)
