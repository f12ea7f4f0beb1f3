"""The page and figures of the detectors: everything is there, nothing is clipped."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from anchorscope.detectors.recommend import recommend
from anchorscope.report import detection
from anchorscope.report.detection import (
    DetectionResults,
    detection_figures,
    detector_table,
    write_detection_report,
)
from detection_synthetic import FOUR, TRUTH, World, write_detection_page, write_world

NAMES = ("detector_auroc", "detector_elsewhere", "detector_risk_coverage")
LONG = "my-own-questions-with-a-rather-long-name.jsonl"
SMALL = {
    name: TRUTH[name]
    for name in (
        "confidence",
        "probe",
        "probe+confidence",
        "mop",
        "auto",
        "length",
        "mop-random-gate",
    )
}
LONGEST = SMALL | {
    name: TRUTH[name] for name in ("pr-attention-constant-gate", "semantic-entropy-10")
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect")
    world = World(datasets=("popqa", "triviaqa"), truth=SMALL, prompt="zero-shot")
    return folder, write_detection_page(world, folder)


def test_everything_that_is_told_is_written(written):
    folder, (sentence, recommended) = written
    figures = {f"figures/{name}.{kind}" for name in NAMES for kind in ("svg", "csv")}
    for name in (*figures, "report.html", "report.md", "observations.json"):
        assert (folder / name).stat().st_size
    assert sentence in (folder / "report.md").read_text(encoding="utf-8")
    assert sentence.startswith(f"Use {recommended} (")
    records = json.loads((folder / "observations.json").read_text(encoding="utf-8"))
    assert len({one["id"] for one in records}) == len(records) > 10
    assert {one["verdict"] for one in records} <= {
        "yes",
        "no",
        "inconclusive",
        "not measured",
    }


def test_the_page_is_one_file(written):
    page = (written[0] / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == len(NAMES)
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "not available</div>" not in page


def test_the_table_has_the_means_over_the_datasets(written):
    results = DetectionResults(written[0])
    table = detector_table(results)
    rows = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
    assert set(rows) == set(SMALL)
    areas = results.detectors.filter(
        metric="auroc", prevalence="balanced", detector="auto"
    )
    inside = areas.filter(pl.col("train") == pl.col("test"))["value"].mean()
    across = areas.filter(
        pl.col("train").is_in(["popqa", "triviaqa"])
        & pl.col("test").is_in(["popqa", "triviaqa"])
    )
    outside = across.filter(pl.col("train") != pl.col("test"))["value"].mean()
    assert rows["auto"]["AUROC"].startswith(f"{inside:.3f} [")
    assert rows["auto"]["AUROC, other data"].startswith(f"{outside:.3f} [")
    assert rows["auto"]["over confidence"].startswith("+0.061 [")
    assert rows["mop-random-gate"]["passes"] == "1"


def test_missing_detectors_and_intervals_leave_a_page(tmp_path):
    world = World(
        datasets=("atlas", "nq"),
        truth={"probe": 0.8},
        paired=float("nan"),
        width=float("nan"),
    )
    context = write_world(world, tmp_path)
    for name in ("detector_curves", "controls"):
        pl.read_csv(tmp_path / f"{name}.csv").clear().write_csv(
            tmp_path / f"{name}.csv"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection, "save_all", lambda *_: None)
        bare = replace(context, bundles={}, warnings=(), left_out={})
        results = DetectionResults(tmp_path)
        chosen = recommend(results.names, results.mean)
        write_detection_report(results, bare, chosen, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Use probe (1 extra pass per answer): AUROC 0.785;" in text
    assert "permuted labels was not run" in text


@pytest.mark.parametrize(
    ("datasets", "truth"),
    [
        (("atlas",), TRUTH),
        (FOUR, TRUTH),
        ((*FOUR, "atlas", LONG, "b", "another set of questions"), LONGEST),
    ],
    ids=["one", "four", "eight"],
)
def test_nothing_is_clipped(tmp_path, datasets, truth):
    write_world(World(datasets=datasets, truth=truth), tmp_path)
    results = DetectionResults(tmp_path)
    figures = detection_figures(results, "A-model-with-a-name-8B")
    assert [figure.name for figure in figures] == [
        one for one in NAMES if len(datasets) > 1 or one != NAMES[1]
    ]
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
