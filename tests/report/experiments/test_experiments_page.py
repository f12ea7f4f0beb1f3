"""The page's part on further evidence: a subsection for what was made, none for what was not, and the right numbers."""

import re
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_further_synthetic import Experiments, make_further
from report_synthetic import make_findings

from anchorscope.report.experiments.experiment_rows import find, select
from anchorscope.report.experiments.heads import head_of
from anchorscope.report.experiments.section import experiment_charts, experiment_sections
from anchorscope.report.findings import EXPERIMENT_ITEM_SCHEMA, EXPERIMENT_SCHEMA, UNAVAILABLE_SCHEMA
from anchorscope.report.run_page import EXPERIMENT_FILES, write_report
from anchorscope.report.statements.claims import judge
from anchorscope.report.statements.all_statements import read
from anchorscope.report.wording import group_cells, p_value_cell, points

CHARTS = experiment_charts()
ORDER = (
    "interventions", "patching", "answer-only", "layers", "heads", "dose", "mediation", "zeroing", "saliency",
    "boundary", "self-awareness", "matched", "wordings", "agreement", "sensitivity", "unavailable",
)  # fmt: skip


def only(findings, *experiments, interventions=()):
    """The same run with some of its experiments."""
    kept = pl.col("intervention").is_in(["knockout", "random", "none", *interventions])
    return replace(
        findings,
        experiments=findings.experiments.filter(pl.col("experiment").is_in(experiments)),
        experiment_items=findings.experiment_items.filter(pl.col("experiment").is_in(experiments)),
        curves=findings.curves.filter(kept),
        summary=findings.summary.filter(kept | pl.col("intervention").is_null()),
        unavailable=findings.unavailable.clear(),
    )


def test_empty_tables_have_the_columns_of_the_files():
    findings = make_findings(("atlas",))
    assert dict(findings.experiments.schema) == EXPERIMENT_SCHEMA
    assert dict(findings.experiment_items.schema) == EXPERIMENT_ITEM_SCHEMA
    assert dict(findings.unavailable.schema) == UNAVAILABLE_SCHEMA
    assert experiment_sections(findings) == []


def test_subsections_come_in_the_agreed_order(further):
    assert tuple(section.slug for section in experiment_sections(further)) == ORDER


@pytest.mark.parametrize("experiment", [slug for slug in ORDER[3:-1] if slug != "zeroing"])
def test_a_subsection_appears_only_where_its_rows_exist(further, experiment):
    (section,) = experiment_sections(only(further, experiment))
    assert section.slug == experiment
    assert section.tables
    assert [figure.name for figure in section.figures] == [experiment.replace("-", "_")]


@pytest.mark.parametrize(
    ("name", "slugs"),
    [("patch-same", ["interventions", "patching"]), ("answer-bare", ["interventions", "answer-only"]),
     ("zeroing", ["interventions", "zeroing"]), ("direct", ["interventions", "layers"]),
     ("template", ["interventions"]), ("subject", [])],
)  # fmt: skip
def test_interventions_bring_their_subsections(further, name, slugs):
    assert [section.slug for section in experiment_sections(only(further, interventions=(name,)))] == slugs


def test_every_figure_of_a_section_is_drawn_and_every_one_drawn_is_shown(further):
    shown = [figure.name for section in experiment_sections(further) for figure in section.figures]
    assert sorted(shown) == sorted(chart.name for chart in CHARTS)


def test_tables_are_whole(further):
    for section in experiment_sections(further):
        assert section.text
        for _, table in section.tables:
            assert all(len(row) == len(table.head) for row in table.rows), section.slug
            assert all(isinstance(cell, str) and cell for row in table.rows for cell in row), section.slug
            assert not any("nan" in cell.lower() for row in table.rows for cell in row), section.slug


def test_the_page_shows_the_numbers(page):
    for name in ("report.html", "report.md"):
        text = (page / name).read_text(encoding="utf-8")
        for wanted in (
            "Further evidence", "Knowledge boundary", "−52.0 [−54.0, −50.0]", "head 2, layers 6–8", "&lt; 0.001",
            "0.87", "83.0\u00a0%", "popularity: none of 160 items", *EXPERIMENT_FILES,
        ):  # fmt: skip
            assert wanted.replace("_", "\\_") in text or wanted in text, (name, wanted)
    ids = re.findall(r'id="([^"]+)"', (page / "report.html").read_text(encoding="utf-8"))
    assert len(set(ids)) == len(ids)
    assert set(ORDER) <= set(ids)


def test_a_run_without_experiments_has_no_such_part(tmp_path):
    findings = make_findings(("atlas",))
    write_report(findings, read(findings), judge([findings]), tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "Further evidence" not in text
        assert "experiments.csv" not in text


def test_a_reason_cannot_bring_markup(tmp_path):
    findings = make_further(("atlas",))
    bad = "<script>x</script> [a](https://b.invalid) | c"
    findings = replace(findings, unavailable=findings.unavailable.with_columns(reason=pl.lit(bad)))
    write_report(findings, read(findings), judge([findings]), tmp_path)
    assert "<script>x" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "](https" not in text


def test_a_group_that_is_missing_is_a_dash_and_not_a_zero():
    found = Experiments("atlas", 0)
    found.add("boundary", "accuracy", 12.0, 1.0, group="Q-Anchored")
    cells = group_cells(pl.DataFrame(found.rows, schema=EXPERIMENT_SCHEMA), "accuracy", points)
    assert cells == ("12.0 [11.0, 13.0]", "120", "–", "–", "–", "–", "–")


def test_rows_of_another_place_and_values_that_are_none_are_left_out(further):
    elsewhere = further.experiments.with_columns(site=pl.lit("attention"))
    assert experiment_sections(replace(only(further), experiments=elsewhere)) == []
    nothing = further.experiments.with_columns(value=pl.lit(float("nan")))
    assert experiment_sections(replace(only(further), experiments=nothing)) == []


def test_all_answers_are_those_without_a_truth_too():
    found = Experiments("atlas", 0)
    found.add("x", "kappa", 0.5, None)
    found.add("x", "kappa", 0.1, None, truth="true")
    table = pl.DataFrame(found.rows, schema=EXPERIMENT_SCHEMA)
    assert select(table, truth="all")["value"].to_list() == [0.5]
    assert find(table, truth="true").value == 0.1
    assert find(table, truth="false") is None


@given(st.integers(0, 200), st.integers(0, 80), st.integers(0, 80))
def test_heads_are_read_back(head, first, last):
    assert head_of(f"head {head}")[0] == head
    assert head_of(f"head {head}, layers {first}–{last}") == (head, f"layers {first}–{last}")
    assert head_of("all heads")[0] == -1
    assert head_of(f"window {head}") is None
    assert head_of(None) is None


@pytest.mark.parametrize(
    ("p", "q", "text"),
    [(0.2, None, "0.200"), (0.00004, None, "< 0.001"), (0.2, 0.3, "0.300"), (None, None, "–"),
     (float("nan"), None, "–"), (0.2, float("nan"), "0.200")],
)  # fmt: skip
def test_chances_are_written_with_the_discovery_rate_where_there_is_one(p, q, text):
    assert p_value_cell(p, q) == text


def test_a_rule_that_is_not_known_here_keeps_its_name(further):
    renamed = only(further, "boundary").experiments.with_columns(assignment=pl.lit("weighed anew"))
    (section,) = experiment_sections(replace(only(further), experiments=renamed))
    assert section.tables[0][1].rows[0][2] == "weighed anew"
