"""The page's part on further evidence: a subsection for what was made, none for what was not, and the right numbers."""

from dataclasses import replace

import polars as pl
import pytest

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.report.panel_figure import catalogued_sections
from anchorscope.report.run_page import experiment_sections
from doc_pages import anchors
from repo import DOCS
from report_further_synthetic import make_further, write_page_of

VERDICTS = {
    "interventions": ("yes", "template tokens cut: 6"),
    "exact-tokens": ("yes", "62"),
    "patching": ("yes", "−28.9"),
    "answer-only": ("yes", "−37.4"),
    "edges": ("no", "38"),
    "zeroing": ("inconclusive", "73"),
    "layers": ("inconclusive", "deepest: layer 6 [5, 7]"),
    "heads": ("inconclusive", "head 2"),
    "mediation": ("yes", "(until layer"),
    "saliency": ("yes", "0.620"),
    "boundary": ("yes", "23"),
    "self-awareness": ("yes", "0.610"),
    "matched": ("yes", "0.70"),
    "wordings": ("no", "0.45"),
}
"""What the made numbers say, in the order of the page; the first six are read from curves."""


def only(findings, *experiments, interventions=()):
    kept = pl.col("intervention").is_in(["knockout", "random", "none", *interventions])
    return replace(
        findings,
        experiments=findings.experiments.filter(
            pl.col("experiment").is_in(experiments)
        ),
        experiment_items=findings.experiment_items.filter(
            pl.col("experiment").is_in(experiments)
        ),
        curves=findings.curves.filter(kept),
        summary=findings.summary.filter(kept | pl.col("intervention").is_null()),
        unavailable=findings.unavailable.clear(),
    )


@pytest.mark.parametrize("experiment", list(VERDICTS)[6:])
def test_a_subsection_appears_only_where_its_rows_exist(further, experiment):
    (section,) = experiment_sections(only(further, experiment))
    assert section.slug == experiment
    assert section.tables


def test_tables_are_whole(sections):
    for section in sections:
        assert section.text or section.slug == "unavailable"
        assert len(section.tables) == 1
        for _, table in section.tables:
            assert all(len(row) == len(table.head) for row in table.rows), section.slug
            assert all(
                isinstance(cell, str) and cell for row in table.rows for cell in row
            ), section.slug
            assert not any(
                "nan" in cell.lower() for row in table.rows for cell in row
            ), section.slug


def test_answers_go_by_the_numbers(sections):
    for section in sections[:-1]:
        verdict, number = VERDICTS[section.slug]
        assert (section.verdict, number in section.answer) == (verdict, True), (
            section.slug,
            section.answer,
        )
        assert section.answer.count("PopQA") == section.answer.count("TriviaQA") == 1


def test_the_docs_say_what_every_answer_means():
    root = DOCS
    told = (
        (root / "evidence" / "README.md")
        .read_text(encoding="utf-8")
        .split("✓ means", 1)[1]
    )
    for spec in catalogued_sections():
        assert f"`{spec.slug}`" in told or spec.title.lower() in told, spec.slug
        page, _, heading = (spec.docs or EXPERIMENTS[spec.slug].docs).partition("#")
        assert heading in {"", *anchors(root / page)}, spec.slug


def test_an_answer_needs_every_dataset_and_its_interval(further):
    def answered(experiments):
        (section,) = experiment_sections(
            replace(only(further, "wordings"), experiments=experiments)
        )
        return section.verdict, section.answer

    rows = only(further, "wordings").experiments
    high = pl.when(pl.col("dataset") == "popqa").then(0.4).otherwise(0.0)
    raised = rows.with_columns(
        pl.col(name) + high for name in ("value", "ci_low", "ci_high")
    )
    assert (
        answered(raised)[0] == "no"
    )  # of one dataset it holds, of the other it does not
    assert (
        answered(rows.with_columns(ci_low=pl.lit(None, pl.Float64)))[0]
        == "inconclusive"
    )
    verdict, answer = answered(rows.with_columns(n=pl.lit(2, pl.Int64)))
    assert verdict == "inconclusive"
    assert "PopQA: 0.45, n = 2" in answer  # so few have no interval
    verdict, answer = answered(rows.filter(pl.col("truth") != "all"))
    assert verdict == "inconclusive"
    assert answer.endswith("is undecided: this run has no such number.")


def test_a_reason_cannot_bring_markup(tmp_path):
    findings = make_further(("atlas",))
    bad = "<script>x</script> [a](https://b.invalid) | c"
    findings = replace(
        findings, unavailable=findings.unavailable.with_columns(reason=pl.lit(bad))
    )
    write_page_of(findings, tmp_path)
    assert "<script>x" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "](https" not in text
