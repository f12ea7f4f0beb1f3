"""Strange input: markup in names, numbers that are missing, groups without items."""

from dataclasses import replace

import polars as pl

from anchorscope.report.charts import delta_p_chart, figures_of
from anchorscope.report.checks import read
from anchorscope.report.run_page import write_report
from report_synthetic import SUMMARY_SCHEMA, make_findings

SCRIPT = "<script>alert('x')</script>"
LINK = "[click](https://example.invalid) | `code` *bold*"


def test_markup_stays_text(tmp_path):
    findings = make_findings(("atlas",))
    items = findings.items.with_columns(
        question=pl.lit(SCRIPT + LINK), model_answer=pl.lit('"><img src=x onerror=1>')
    )
    findings = replace(
        findings,
        model=SCRIPT,
        items=items,
        facts={"model": SCRIPT + LINK},
        command="x </pre>" + SCRIPT,
    )
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
    chart = delta_p_chart(findings)
    chart.save(tmp_path)
    assert "$x^2$" in (tmp_path / "figures" / "delta_p.svg").read_text(encoding="utf-8")


def test_missing_numbers_are_said_and_do_not_crash(tmp_path):
    findings = make_findings(("atlas",))
    bare = replace(
        findings,
        summary=pl.DataFrame(schema=SUMMARY_SCHEMA),
        probe_scores=findings.probe_scores.clear(),
        curves=findings.curves.clear(),
        items=findings.items.clear(),
        reference_layers={},
    )
    observations = read(bare)
    assert {one.verdict for one in observations} == {"not measured"}
    write_report(bare, observations, tmp_path)
    assert "not available" in (tmp_path / "report.html").read_text(encoding="utf-8")
    for display in figures_of(bare):
        display.plot()
