"""A new experiment is its own section file and its entry in the catalogue: the page and the figures find it there."""

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from anchorscope import catalogue
from anchorscope.report.findings import EXPERIMENT_SCHEMA, Findings
from anchorscope.report.render import figures_of
from report_further_synthetic import Experiments, make_further, write_page_of

MODULE = '''
"""A made-up experiment: how loud the answers are."""

from anchorscope.report.result_rows import find, statistics
from anchorscope.report.panel_figure import ChartSpec, Own
from anchorscope.experiments.section import Answer, SectionSpec, TableSpec, number, value
from anchorscope.report.verdicts import above
from anchorscope.report.wording import points

PANEL = Own(lambda axes, rows, place: axes.bar(rows["dataset"].to_list(), rows["value"].to_list()), 3.0)


def loud(rows):
    return number(find(rows), above(find(rows), 60.0), points, "level")


SECTION = SectionSpec(
    slug="loudness",
    title="Loudness of the answers",
    rows=lambda findings: statistics(findings, "loudness"),
    asks="Are true answers louder?",
    careful="Only where there is a microphone.",
    answer=Answer("They are loud", "They are not loud", "Whether they are loud is undecided", loud),
    charts=(ChartSpec("loudness", "loudness", "Bars of loudness", "Higher is louder.", "In decibels.",
                      lambda findings: statistics(findings, "loudness").select("dataset", "value"),
                      lambda _: [PANEL]),),
    tables=(TableSpec("Decibels", (), (value("dB", points),)),),
)
'''


@pytest.fixture
def loud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment, added as anybody would add one."""
    (tmp_path / "loudness_section.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    entry = catalogue.ExperimentEntry("loudness", "how loud?", "x.md", section="loudness_section:SECTION", place=45)
    monkeypatch.setitem(catalogue.EXPERIMENTS, "loudness", entry)
    yield
    sys.modules.pop("loudness_section", None)


def written(findings: Findings, out: Path) -> Path:
    """The page with the figures of this experiment: others are drawn in other tests."""
    out.mkdir()
    for figure in figures_of(findings):
        if figure.name == "loudness":
            figure.save(out)
    return write_page_of(findings, out)


@pytest.mark.usefixtures("loud")
def test_a_new_experiment_brings_its_section_and_its_figure(tmp_path):
    found, run = Experiments("atlas", 0), make_further(("atlas",))
    found.add("loudness", "level", 61.5, 1.0)
    rows = pl.DataFrame(found.rows, schema=EXPERIMENT_SCHEMA)
    out = written(replace(run, experiments=pl.concat([run.experiments, rows])), tmp_path / "run")
    for kind in ("png", "svg", "pdf", "csv"):
        assert (out / "figures" / f"loudness.{kind}").stat().st_size
    assert (out / "figures" / "loudness.csv").read_text(encoding="utf-8") == "dataset,value\natlas,61.5\n"
    html = (out / "report.html").read_text(encoding="utf-8")
    for wanted in (
        "Loudness of the answers",
        "Are true answers louder?",
        "Decibels",
        "61.5 [60.5, 62.5]",
        "Bars of loudness",
        "They are loud (level 61.5 [60.5, 62.5], n = 120).",
    ):
        assert wanted in html, wanted
    assert html.index('id="layers"') < html.index('id="loudness"') < html.index('id="heads"')  # by its place
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "✓ **Loudness of the answers.** They are loud" in text


@pytest.mark.usefixtures("loud")
def test_a_run_that_did_not_make_it_does_not_show_it(tmp_path):
    out = written(make_further(("atlas",)), tmp_path / "run")
    assert "Loudness" not in (out / "report.html").read_text(encoding="utf-8")
    assert not (out / "figures").exists()
