"""Strange input: markup in names, numbers that are missing, groups without items."""

from dataclasses import replace

import polars as pl
import pytest

from anchorscope.report.chart_data import page_data
from anchorscope.report.charts.delta_p import DeltaPChart, ReferenceLayerChart, TruthSplitChart
from anchorscope.report.render import figures_of
from anchorscope.report.run_page import write_report
from anchorscope.report.statements.all_statements import read
from report_synthetic import LAYERS, SUMMARY_SCHEMA, make_findings

SCRIPT = "<script>alert('x')</script>"
LINK = "[click](https://example.invalid) | `code` *bold*"


def test_markup_stays_text(tmp_path):
    findings = make_findings(("atlas",))
    items = findings.items.with_columns(question=pl.lit(SCRIPT + LINK), model_answer=pl.lit('"><img src=x onerror=1>'))
    findings = replace(findings, model=SCRIPT, items=items, facts={"model": SCRIPT + LINK}, command="x </pre>" + SCRIPT)
    write_report(findings, read(findings), tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert SCRIPT not in page
    assert page.count("<script") == 3  # the page's own, and its data
    assert "<img src=x" not in page
    assert "&lt;script&gt;" in page
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<script" not in body
    assert "](https" not in body
    assert "\\| \\`code\\` \\*bold\\*" in body


def test_a_dollar_or_a_foreign_letter_in_a_name_is_drawn_as_it_is(tmp_path):
    findings = replace(make_findings(("file:$a$",)), model="千问 $x^2$ _m_")
    chart = DeltaPChart.from_findings(findings)
    chart.save(tmp_path)
    assert "$x^2$" in (tmp_path / "figures" / "delta_p.svg").read_text(encoding="utf-8")


def test_missing_numbers_are_said_and_do_not_crash(tmp_path):
    findings = make_findings(("atlas",))
    bare = replace(
        findings,
        summary=pl.DataFrame(schema=SUMMARY_SCHEMA),
        probe_scores=findings.probe_scores.clear(),
        curves=findings.curves.clear(),
        reference_curves=findings.reference_curves.clear(),
        items=findings.items.clear(),
        reference_layers={},
        steps=findings.steps.clear(),
    )
    observations = read(bare)
    assert {entry["verdict"] for entry in observations if entry["standing"] != "by construction"} == {"undecided"}
    write_report(bare, observations, tmp_path)
    assert "not available" in (tmp_path / "report.html").read_text(encoding="utf-8")
    for display in figures_of(bare):
        display.plot()


def test_an_empty_group_is_left_out_and_named():
    findings = make_findings(("atlas",))
    q_group = pl.col("group") == "Q-Anchored"
    none = findings.curves.with_columns(n=pl.when(q_group).then(0).otherwise(pl.col("n")))
    chart = DeltaPChart.from_findings(replace(findings, curves=none))
    assert "Q-Anchored (Atlas): no items" in chart.notes
    assert set(chart.data["group"]) == {"A-Anchored"}
    texts = [text.get_text() for text in chart.plot().texts]
    assert "Q-Anchored (Atlas): no items" in texts
    by_panel = findings.curves.filter(~(q_group & (pl.col("assignment") == "corrected")))
    chart = DeltaPChart.from_findings(replace(findings, curves=by_panel))
    assert "Q-Anchored (Atlas), corrected for the shift: no items" in chart.notes


def test_a_line_of_few_items_is_thin_and_has_no_band():
    findings = make_findings(("atlas",))
    rare = (pl.col("group") == "Q-Anchored") & (pl.col("truth") == "false")
    counts = [pl.when(rare).then(3).otherwise(name).alias(name) for name in ("n", "n_groups")]
    few = findings.curves.with_columns(*counts)
    panel = TruthSplitChart.from_findings(replace(findings, curves=few)).plot().axes[0]
    assert [text.get_text() for text in panel.texts] == ["items: Q true 300, Q false 3, A true 300, A false 300"]
    curves = [line for line in panel.lines if len(line.get_xdata()) == LAYERS]
    assert sorted(line.get_linewidth() for line in curves)[0] < 1.2
    assert len(curves) == 4
    assert len(panel.collections) == 3, "bands"


@pytest.mark.parametrize("chart", [DeltaPChart, TruthSplitChart, ReferenceLayerChart])
def test_every_figure_of_delta_p_has_the_pages_axis(chart):
    findings = make_findings(("atlas",))
    low, high = page_data(findings)["views"]["delta-p-view"]["axis"]["range"]
    for axes in chart.from_findings(findings).plot().axes:
        assert axes.get_ylim()[1] == high
        assert axes.get_ylim()[0] <= low  # the ticks of l* lie below
