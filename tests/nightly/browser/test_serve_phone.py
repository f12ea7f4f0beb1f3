"""The service's page on a phone: nothing scrolls sideways, no table either; and what the training share is."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe

from anchorscope.models.language_model import LanguageModel
from browser_fixtures import OpenServed, check
from detector_cases import probes_of, trained_on
from running import Running, running

SIDEWAYS = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
QUALITY = tuple(
    {
        "metric": metric,
        "prevalence": prevalence,
        "train": "a-dataset",
        "test": "another-dataset-of-a-long-name",
        "value": 0.877,
        "ci_low": 0.854,
        "ci_high": 0.896,
        "n": 1152,
    }
    for metric, prevalence in (("auroc", "balanced"), ("ece", "natural"), ("brier", "natural"))
)


@pytest.fixture(scope="module")
def served(tiny_llama: LanguageModel) -> Iterator[Running]:
    """A detector whose quality was measured."""
    whole = trained_on(tiny_llama, layer_probes=probes_of(tiny_llama), sha256="a" * 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("running.made_detectors", lambda lm: [replace(whole, card=replace(whole.card, quality=QUALITY))])
        with running(tiny_llama) as found:
            yield found


@pytest.mark.parametrize("width", [360, 1200])
def test_the_quality_table_fits_and_is_a_table_to_everybody(open_served: OpenServed, width: int) -> None:
    page = open_served(viewport={"width": width, "height": 740}, bypass_csp=True)
    table = page.get_by_role("region", name="Measured quality").get_by_role("table")
    table.wait_for()
    assert table.get_by_role("row").count() == 4
    heads = ["Measure", "Tested on", "Value", "95 % interval", "Answers"]
    assert table.get_by_role("columnheader").all_inner_texts() == heads
    assert table.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()[2:] == ["0.88", "0.85 to 0.90", "1152"]
    assert page.evaluate(SIDEWAYS) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    told = [(one["id"], node["html"][:160]) for one in Axe().run(page).response["violations"] for node in one["nodes"]]
    assert told == []


def test_a_question_of_blanks_is_told_and_not_asked(open_served: OpenServed) -> None:
    page = open_served()
    page.wait_for_selector("#about-detector table")
    page.fill("#question", "   ")
    page.click("#go")
    page.locator("#state", has_text="Fill in a question.").wait_for()
    assert page.evaluate("document.activeElement.id") == "question"
    assert page.locator(".verdict").count() == 0


def test_the_share_of_training_is_said_to_be_what_the_same_probe_loses(open_served: OpenServed) -> None:
    page = open_served()
    check(page, "What is the capital of Peru?", "Lima")
    assert "transfer" not in page.locator("#cautions").inner_text()
    page.get_by_label("Evidence lost", exact=True).check()
    said = page.locator("#cautions", has_text="carries over (transfer)")
    said.wait_for()
    assert "not the question share Λ" in said.inner_text()
    assert "60 answers of training, by the same probe" in page.locator("#chart").inner_text()
