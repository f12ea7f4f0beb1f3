"""Every page opens in a real browser, on a desk and on a phone: a headline, its charts, nothing wider than the window.

Errors on a page's console and requests to anybody else fail the test (`browser_fixtures`). What the pages let a reader
do is tested in `tests/nightly/browser`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from anchorscope.report.comparison import comparison_page
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.detection import detection_page
from browser_fixtures import OpenPage, OpenServed, check
from browser_pages import write_run
from compared_runs import model_findings, with_random
from detection_synthetic import World as DetectionWorld
from detection_synthetic import write_world
from detector_cases import probes_of, trained_on
from report_shares import World, run_with_shares, with_shares
from running import Running, running

WINDOWS = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


def write_run_page(folder: Path) -> Path:
    return write_run(run_with_shares(datasets=("popqa", "triviaqa")), folder)


def write_comparison_page(folder: Path) -> Path:
    small, large = model_findings("Small", layers=30), model_findings("Large", layers=30, parameters=10**9)
    runs = (with_shares(with_random(small), World(share=0.4)), with_shares(with_random(large), World(share=0.7)))
    comparison_page.write_comparison(Compared(runs, ("a", "b")), folder, Silent())
    return folder / "report.html"


def write_detection_page(folder: Path) -> Path:
    context = write_world(DetectionWorld(datasets=("popqa", "nq")), folder)
    detection_page.write_detection_report(folder, context)
    return folder / "report.html"


@pytest.fixture(scope="module", params=[write_run_page, write_comparison_page, write_detection_page])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison_page, detection_page):
            patch.setattr(module, "save_all", lambda *_: None)  # printed figures are drawn in other tests
        page: Path = request.param(tmp_path_factory.mktemp("page"))
    return page


@pytest.mark.parametrize("window", WINDOWS)
def test_a_written_page_opens(report: Path, open_page: OpenPage, window: str) -> None:
    page = open_page(report, viewport=WINDOWS[window])
    assert page.locator("h1").first.is_visible()
    assert page.locator("svg:visible, .tile:visible").count() > 0
    assert page.locator("table").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= WINDOWS[window]["width"]


@pytest.fixture(scope="module")
def served(tiny_llama: LanguageModel) -> Iterator[Running]:
    detector = trained_on(tiny_llama, layer_probes=probes_of(tiny_llama), sha256="a" * 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("running.made_detectors", lambda lm: [detector])
        with running(tiny_llama) as service:
            yield service


@pytest.mark.parametrize("window", WINDOWS)
def test_the_service_checks_an_answer_on_its_page(open_served: OpenServed, window: str) -> None:
    page = open_served(viewport=WINDOWS[window])
    check(page, "What is the capital of Peru?", "Lima")
    assert page.evaluate("document.documentElement.scrollWidth") <= WINDOWS[window]["width"]
