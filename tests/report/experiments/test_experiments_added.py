"""A new experiment is its own section file and its entry in the catalogue: the page and the figures find it there."""

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from report_further_synthetic import Experiments, make_further

from anchorscope import catalogue
from anchorscope.report.findings import EXPERIMENT_SCHEMA, Findings
from anchorscope.report.render import figures_of
from anchorscope.report.run_page import write_report
from anchorscope.report.statements.claims import judge
from anchorscope.report.statements.all_statements import read

MODULE = '''
"""A made-up experiment: how loud the answers are."""

from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl
from matplotlib.figure import Figure

from anchorscope.report.experiments.experiment_rows import statistics
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.wording import Table


@final
@dataclass(frozen=True)
class LoudnessChart(ExperimentChart):
    """Bars."""

    name: ClassVar[str] = "loudness"
    alt: ClassVar[str] = "Bars of loudness"
    caption: ClassVar[str] = "Higher is louder."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        return statistics(findings, "loudness").select("dataset", "value")

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        return ("In decibels.",)

    def draw(self) -> Figure:
        figure = Figure()
        figure.subplots().bar(self.data["dataset"].to_list(), self.data["value"].to_list())
        return figure


SECTION = SectionSpec(
    slug="loudness",
    title="Loudness of the answers",
    rows=lambda findings: statistics(findings, "loudness"),
    text=("Are true answers louder?",),
    charts=(LoudnessChart,),
    tables=(("Decibels", lambda findings, rows: Table(("dataset", "dB"), tuple(
        (str(dataset), str(value)) for dataset, value in rows.select("dataset", "value").iter_rows()
    ))),),
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
    for figure in figures_of(findings):
        if figure.name == "loudness":
            figure.save(out)
    out.mkdir(exist_ok=True)
    write_report(findings, read(findings), judge([findings]), out)
    return out


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
    for wanted in ("Loudness of the answers", "Are true answers louder?", "Decibels", "61.5", "Bars of loudness"):
        assert wanted in html, wanted
    assert html.index('id="layers"') < html.index('id="loudness"') < html.index('id="heads"')  # by its place
    assert "![Bars of loudness](figures/loudness.png)" in (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("loud")
def test_a_run_that_did_not_make_it_does_not_show_it(tmp_path):
    out = written(make_further(("atlas",)), tmp_path / "run")
    assert "Loudness" not in (out / "report.html").read_text(encoding="utf-8")
    assert not (out / "figures").exists()
