"""The page and figures of the detectors: everything is there, nothing is clipped, nobody's text becomes code."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from anchorscope.report.detection import detection_page
from anchorscope.report.detection.detection_page import SCRIPTS, detection_figures, page_table, write_detection_report
from anchorscope.report.detection.results import DetectionResults
from anchorscope.report.page_writer import joined_script
from detection_synthetic import FOUR, TRUTH, World, write_world

NAMES = ("detector_auroc", "detector_risk_coverage")
LONG = "my-own-questions-with-a-rather-long-name.jsonl"
MARKUP = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
SMALL = {
    name: TRUTH[name]
    for name in ("confidence", "probe", "probe+confidence", "mop", "auto", "length", "mop-random-gate")
}
LONGEST = SMALL | {name: TRUTH[name] for name in ("counterfactual-random-cut", "semantic-entropy-10")}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect")
    context = write_world(World(datasets=("popqa", "triviaqa"), truth=SMALL, prompt="zero-shot"), folder)
    return folder, write_detection_report(folder, context)


def pages(world: World, folder, **context) -> dict[str, str]:
    """Both pages without figures: drawing takes the time."""
    made = replace(write_world(world, folder), **context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection_page, "save_all", lambda *_: None)
        write_detection_report(folder, made)
    return {kind: (folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md")}


def test_everything_that_is_told_is_written(written):
    folder, card = written
    figures = {f"figures/{name}.{kind}" for name in NAMES for kind in ("svg", "csv")}
    for name in (*figures, "report.html", "report.md", "observations.json"):
        assert (folder / name).stat().st_size
    assert card.sentence in (folder / "report.md").read_text(encoding="utf-8")
    records = json.loads((folder / "observations.json").read_text(encoding="utf-8"))
    assert len({one["id"] for one in records}) == len(records) > 10
    assert {one["verdict"] for one in records} <= {"yes", "no", "inconclusive", "not measured"}


def test_the_page_is_one_file_with_its_own_script(written):
    page = (written[0] / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL) == [joined_script(SCRIPTS)]
    assert page.count("data:image/svg+xml;base64,") == 2
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "not available</div>" not in page


def test_the_pages_own_table_is_the_file(written):
    results = DetectionResults.read(written[0])
    data = page_table(results)
    assert len(data["rows"]) == results.detectors.height
    assert len(data["gains"]) == results.differences.height
    detector, train, test, metric, prevalence, value, low, _, n = data["rows"][0]
    first = results.detectors.row(0, named=True)
    assert data["detectors"][detector] == [first["detector"], first["passes"], "detector"]
    assert (data["places"][train], data["places"][test]) == ("PopQA", "PopQA")
    assert (data["metrics"][metric][0], data["prevalences"][prevalence], n) == ("auroc", "balanced", 1000)
    assert (value, low) == (pytest.approx(first["value"], abs=1e-4), pytest.approx(first["ci_low"], abs=1e-4))
    spread = next(row for row in data["rows"] if data["metrics"][row[3]][0] == "auroc-spread")
    assert spread[6:8] == [None, None]
    json.dumps(data, allow_nan=False)


def test_missing_detectors_and_intervals_leave_a_page(tmp_path):
    world = World(datasets=("atlas", "nq"), truth={"probe": 0.8}, paired=float("nan"), width=float("nan"))
    context = write_world(world, tmp_path)
    for name in ("detector_curves", "controls"):
        pl.read_csv(tmp_path / f"{name}.csv").clear().write_csv(tmp_path / f"{name}.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection_page, "save_all", lambda *_: None)
        write_detection_report(tmp_path, replace(context, bundles={}, warnings=(), left_out={}))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Use probe (1 extra pass per answer): AUROC 0.785;" in text
    assert "permuted labels was not run" in text


def test_names_with_markup_stay_text(tmp_path):
    world = World(datasets=(MARKUP, "b|c"), truth=SMALL)
    told = {"model": MARKUP, "command": MARKUP, "warnings": (MARKUP,), "left_out": {MARKUP: MARKUP}, "runs": (MARKUP,)}
    found = pages(world, tmp_path, **told)
    for page in found.values():
        assert "alert(2)</script>" not in page.replace("    " + MARKUP, "")  # in Markdown, the command is code
        assert "&lt;img src=x" in page
    assert "<img src=x" not in found["html"]
    assert "b\\|c" in found["md"]


@pytest.mark.parametrize(
    ("datasets", "truth"),
    [(("atlas",), TRUTH), (FOUR, TRUTH), ((*FOUR, "atlas", LONG, "b", "another set of questions"), LONGEST)],
    ids=["one", "four", "eight"],
)
def test_nothing_is_clipped(tmp_path, datasets, truth):
    write_world(World(datasets=datasets, truth=truth), tmp_path)
    results = DetectionResults.read(tmp_path, datasets)
    figures = detection_figures(results, "A-model-with-a-name-8B")
    assert tuple(figure.name for figure in figures) == NAMES
    for chart in figures:
        figure = chart.plot()
        width, height = figure.get_size_inches()
        assert width < 16
        assert height < 20
        drawn = figure.get_tightbbox()  # of everything that is drawn, in inches
        assert drawn is not None
        assert min(drawn.x0, drawn.y0) >= -0.01, chart.name
        assert drawn.x1 <= width + 0.01, chart.name
        assert drawn.y1 <= height + 0.01, chart.name
