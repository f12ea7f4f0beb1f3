"""What is written: every file, with nothing in it that would load or differ from what is drawn."""

import json
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from report_synthetic import make_findings

from anchorscope.report.delta_p import DeltaPChart
from anchorscope.report.figures import displays
from anchorscope.report.page import FILES
from anchorscope.report.readings import read

FIGURES = ("delta_p", "probe_auc", "surviving_signal", "truth_split", "delta_p_reference")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_comes_in_three_formats_with_its_numbers(written, name):
    heads = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, head in heads.items():
        assert (written / "figures" / f"{name}.{kind}").read_bytes().startswith(head)
    assert pl.read_csv(written / "figures" / f"{name}.csv").height > 0


def test_the_csv_is_what_is_drawn(findings, written):
    saved = pl.read_csv(written / "figures" / "delta_p.csv")
    figure = DeltaPChart.from_findings(findings).plot()
    for axes, assignment in zip(figure.axes, ("plain", "corrected"), strict=True):
        lines = [np.asarray(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == findings.n_layers]
        keys = ["intervention", "dataset", "group"]
        groups = saved.filter(pl.col("assignment") == assignment).group_by(keys)
        series = [rows.sort("layer")["delta_p"].to_numpy() for _, rows in groups]
        assert len(lines) == len(series) == 8  # two datasets × two groups, knockout and random
        for values in series:
            assert any(np.array_equal(values, line) for line in lines)


def test_the_chart_has_the_agreed_words(findings):
    figure = DeltaPChart.from_findings(findings).plot()
    left, right = figure.axes
    assert figure.get_suptitle() == findings.model
    assert [left.get_title(), right.get_title()] == ["plain (as in the paper)", "corrected for the shift"]
    assert (left.get_xlabel(), left.get_ylabel()) == ("Layer", "ΔP")
    assert left.get_ylim() == right.get_ylim()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "Q-Anchored (PopQA)" in labels
    assert "A-Anchored (TriviaQA)" in labels


def test_same_numbers_same_bytes(tmp_path, findings, written):
    DeltaPChart.from_findings(findings).save(tmp_path)
    for kind in ("png", "svg", "pdf", "csv"):
        first, second = (folder / "figures" / f"delta_p.{kind}" for folder in (written, tmp_path))
        assert first.read_bytes() == second.read_bytes()


def test_svg_keeps_text_as_text(written):
    assert "Q-Anchored (PopQA)" in (written / "figures" / "delta_p.svg").read_text(encoding="utf-8")


def test_the_page_loads_nothing(written):
    page = (written / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|//cdn|<script|<link|@import|url\(", page)
    assert re.findall(r'src="(?!data:)', page) == []
    assert page.count("data:image/svg+xml;base64,") == len(FIGURES)


def test_the_page_carries_this_runs_numbers(written):
    for name in ("report.html", "report.md"):
        text = (written / name).read_text(encoding="utf-8")
        for wanted in (
            "Before you believe it",
            "98\u00a0%",
            "0.50 to 0.17",
            "−52.0",
            "14\u202f267",
            "0.710",
            "anchorscope run",
        ):
            assert wanted in text
        assert "not available" not in text
        assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower().split()
        assert all(file in text for file in FILES)


def test_observations_file_equals_the_readings(findings, written):
    saved = json.loads((written / "observations.json").read_text(encoding="utf-8"))
    assert saved == read(findings)
    assert len({entry["id"] for entry in saved}) == len(saved)
    for entry in saved:
        assert {
            "id",
            "text",
            "value",
            "ci_low",
            "ci_high",
            "verdict",
            "dataset",
            "site",
            "position",
            "assignment",
        } <= set(entry)
        assert entry["verdict"] in {"holds", "does not hold", "undecided"}


@pytest.mark.parametrize("datasets", [("atlas",), ("popqa", "triviaqa", "hotpotqa", "nq", "file:mine.csv")])
def test_one_dataset_or_five(datasets):
    for display in displays(make_findings(datasets)):
        figure = display.plot()
        width, height = figure.get_size_inches()
        assert width < 16
        assert height < 20


def test_the_room_needs_no_torch():
    code = "import sys, anchorscope.report; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
