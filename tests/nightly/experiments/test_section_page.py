"""The page's part on further evidence: a subsection for what was made, none for what was not, and the right numbers."""

import re
from dataclasses import replace
from html import unescape
from itertools import product

import polars as pl
import pytest

from anchorscope.experiments.section import TableSpec, value
from anchorscope.experiments.section import items as items_column
from anchorscope.report.findings import EXPERIMENT_ITEM_SCHEMA, EXPERIMENT_SCHEMA, UNAVAILABLE_SCHEMA
from anchorscope.report.panel_figure import catalogued_sections, experiment_charts
from anchorscope.report.result_rows import find, first_row, select, with_aspects
from anchorscope.report.run_page import experiment_sections
from anchorscope.report.wording import p_value_cell, points
from repo import DOCS
from report_further_synthetic import Experiments, make_further, write_page_of
from report_synthetic import make_findings

ORDER = (
    "interventions",
    "exact-tokens",
    "patching",
    "answer-only",
    "layers",
    "edges",
    "heads",
    "dose",
    "mediation",
    "zeroing",
    "saliency",
    "boundary",
    "self-awareness",
    "matched",
    "wordings",
    "unavailable",
)


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


def test_subsections_come_in_the_agreed_order_and_bring_their_figures(sections):
    assert tuple(section.slug for section in sections) == ORDER
    shown = [figure.name for section in sections for figure in section.figures]
    assert sorted(shown) == sorted(chart.name for chart in experiment_charts())


@pytest.mark.parametrize("experiment", [slug for slug in ORDER[4:-1] if slug not in ("edges", "zeroing")])
def test_a_subsection_appears_only_where_its_rows_exist(further, experiment):
    (section,) = experiment_sections(only(further, experiment))
    assert section.slug == experiment
    assert section.tables
    assert [figure.name for figure in section.figures] == [experiment.replace("-", "_")]


@pytest.mark.parametrize(
    ("name", "slugs"),
    [
        ("patch-same", ["interventions", "patching"]),
        ("answer-bare", ["interventions", "answer-only"]),
        ("zeroing", ["interventions", "zeroing"]),
        ("direct", ["interventions", "edges"]),
        ("template", ["interventions"]),
        ("subject", ["exact-tokens"]),
    ],
)
def test_interventions_bring_their_subsections(further, name, slugs):
    assert [section.slug for section in experiment_sections(only(further, interventions=(name,)))] == slugs


def test_tables_are_whole(sections):
    for section in sections:
        assert section.text or section.slug == "unavailable"
        assert len(section.tables) == 1
        for _, table in section.tables:
            assert all(len(row) == len(table.head) for row in table.rows), section.slug
            assert all(isinstance(cell, str) and cell for row in table.rows for cell in row), section.slug
            assert not any("nan" in cell.lower() for row in table.rows for cell in row), section.slug


def test_the_page_shows_the_numbers(page):
    shown = ("Further evidence", "Knowledge boundary")
    numbers = ("−31.2 [−33.2, −29.2]", "&lt; 0.001", "0.87", "popularity: none of 160 items")
    for name, more in (("report.html", numbers), ("report.md", ())):
        text = (page / name).read_text(encoding="utf-8")
        for wanted in (*shown, *more):
            assert wanted in text, (name, wanted)
    ids = re.findall(r'id="([^"]+)"', (page / "report.html").read_text(encoding="utf-8"))
    assert len(set(ids)) == len(ids)
    assert set(ORDER) <= set(ids)


def test_a_section_is_one_line_that_opens_and_in_plain_text_its_answer(page, sections):
    html, text = ((page / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    folded = re.findall(r'<details class="section" id="([^"]+)">\n<summary>(.+?)</summary>', html)
    answers = {section.slug: section.answer for section in sections if section.answer}
    assert [slug for slug, _ in folded] == list(answers)
    for slug, summary in folded:
        assert answers[slug] in unescape(summary)
        badge = re.search('aria-label="(yes|no|inconclusive)">[✓✗?]<', summary)
        assert bool(badge) == (slug != "unavailable")
    evidence = text[text.index("## Further evidence") : text.index("## Methods")]
    told = [line for line in evidence.splitlines() if line.startswith("- ")]
    assert len(told) == len(answers)
    assert all(line[2] in "✓✗?" for line in told[:-1])


def test_a_section_says_what_it_has_to_say_in_few_words(sections):
    for section in sections[:-1]:
        sentence = section.answer[: section.answer.rindex(" (PopQA")]
        words = len(" ".join((*section.text, sentence)).split())
        assert words <= 60, (section.slug, words)


VERDICTS = {
    "interventions": ("yes", "template tokens cut: 6"),
    "exact-tokens": ("inconclusive", "58"),
    "patching": ("yes", "−17.3"),
    "answer-only": ("yes", "−22.4"),
    "edges": ("no", "36"),
    "zeroing": ("inconclusive", "69"),
    "layers": ("inconclusive", "deepest: layer 6 [5, 7]"),
    "heads": ("inconclusive", "head 2"),
    "dose": ("no", "20"),
    "mediation": ("yes", "(until layer"),
    "saliency": ("yes", "0.620"),
    "boundary": ("yes", "23"),
    "self-awareness": ("yes", "0.610"),
    "matched": ("yes", "0.70"),
    "wordings": ("no", "0.45"),
}


def test_answers_go_by_the_numbers(sections):
    for section in sections[:-1]:
        verdict, number = VERDICTS[section.slug]
        assert (section.verdict, number in section.answer) == (verdict, True), (section.slug, section.answer)
        assert section.answer.count("PopQA") == section.answer.count("TriviaQA") == 1


def test_the_docs_say_what_every_answer_means():
    root = DOCS
    told = (root / "evidence" / "README.md").read_text(encoding="utf-8").split("✓ means", 1)[1]
    for spec in catalogued_sections():
        assert f"`{spec.slug}`" in told or spec.title.lower() in told, spec.slug
        assert (root / (spec.docs or f"evidence/{spec.slug}.md")).is_file(), spec.slug


def test_an_answer_needs_every_dataset_and_its_interval(further):
    def answered(experiments):
        (section,) = experiment_sections(replace(only(further, "wordings"), experiments=experiments))
        return section.verdict, section.answer

    rows = only(further, "wordings").experiments
    high = pl.when(pl.col("dataset") == "popqa").then(0.4).otherwise(0.0)
    raised = rows.with_columns(pl.col(name) + high for name in ("value", "ci_low", "ci_high"))
    assert answered(raised)[0] == "no"  # of one dataset it holds, of the other it does not
    assert answered(rows.with_columns(ci_low=pl.lit(None, pl.Float64)))[0] == "inconclusive"
    verdict, answer = answered(rows.with_columns(n=pl.lit(2, pl.Int64)))
    assert verdict == "inconclusive"
    assert "PopQA: 0.45, n = 2" in answer  # so few have no interval
    verdict, answer = answered(rows.filter(pl.col("truth") != "all"))
    assert verdict == "inconclusive"
    assert answer.endswith("is undecided: this run has no such number.")


def test_an_answer_names_the_datasets_that_decide_it():
    run = make_further(("popqa", "triviaqa", "hotpotqa", "nq"))
    rows = only(run, "wordings").experiments
    high = pl.when(pl.col("dataset") == "popqa").then(0.4).otherwise(0.0)
    raised = rows.with_columns(pl.col(name) + high for name in ("value", "ci_low", "ci_high"))
    (section,) = experiment_sections(replace(only(run, "wordings"), experiments=raised))
    assert "(TriviaQA: 0.45 [0.36, 0.54], n = 120; HotpotQA: 0.45 [0.36, 0.54], n = 120; 2 more)" in section.answer
    assert section.tables[0][1].rows[0] == ("PopQA", "all answers", "0.85 [0.76, 0.94]", "120")


def test_a_line_that_only_counts_items_is_left_out():
    columns = (value("reliability", points, quantity="x"), items_column())
    rows = with_aspects(pl.DataFrame([dict.fromkeys(EXPERIMENT_SCHEMA) | {"dataset": "atlas"}], EXPERIMENT_SCHEMA))
    assert not TableSpec("", (), columns).table(make_findings(("atlas",)), rows).rows


def test_both_sets_of_matched_answers_stand_side_by_side(sections):
    (section,) = [section for section in sections if section.slug == "matched"]
    lines = {line[1]: line[2:] for line in section.tables[0][1].rows if line[0] == "PopQA"}
    assert lines["AUC: probe trained on them"] == ("0.70 [0.66, 0.74]", "120", "0.80 [0.76, 0.84]", "120")
    assert lines["AUC: words alone"] == ("0.50 [0.47, 0.53]", "120", "–", "–")
    assert lines["Λ: key words cut"] == ("0.93 [0.85, 1.01]", "120", "0.60 [0.52, 0.68]", "120")


def test_a_run_without_experiments_has_no_such_part(tmp_path):
    findings = make_findings(("atlas",))
    write_page_of(findings, tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "Further evidence" not in text


def test_a_reason_cannot_bring_markup(tmp_path):
    findings = make_further(("atlas",))
    bad = "<script>x</script> [a](https://b.invalid) | c"
    findings = replace(findings, unavailable=findings.unavailable.with_columns(reason=pl.lit(bad)))
    write_page_of(findings, tmp_path)
    assert "<script>x" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "](https" not in text


def test_a_group_that_is_missing_is_a_dash_and_not_a_zero(further):
    kept = only(further, "boundary")
    rows = kept.experiments.filter(pl.col("group") == "Q-Anchored")
    (section,) = experiment_sections(replace(kept, experiments=rows))
    assert section.tables[0][1].rows[0][2:] == ("35.0% [30.0, 40.0]", "120", "–", "–", "–", "–")


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


@pytest.mark.parametrize(
    "asked",
    [
        *({"truth": one} for one in (None, "all", "true")),
        *({"group": one} for one in (None, "all", ("x", "true"), ())),
        *({"layer": one} for one in (None, 0)),
        {"truth": "all", "group": "x", "layer": 1},
        {},
    ],
)
def test_the_first_row_is_that_of_all_that_fit_in_small_and_large_tables(asked):
    words = (None, "x", "true", "all")
    every = pl.DataFrame(product(words, words, (None, 1, 0)), schema=["truth", "group", "layer"], orient="row")
    table = every.with_row_index()
    assert first_row(pl.concat([table] * 5), **asked) == first_row(table, **asked)
    for first in range(0, table.height, 3):
        fitting = select(table[first:], **asked)
        assert first_row(table[first:], **asked) == (fitting.row(0, named=True) if fitting.height else None)


@pytest.mark.parametrize(
    ("p", "q", "text"),
    [
        (0.2, None, "0.200"),
        (0.00004, None, "< 0.001"),
        (0.2, 0.3, "0.300"),
        (None, None, "–"),
        (float("nan"), None, "–"),
        (0.2, float("nan"), "0.200"),
    ],
)
def test_chances_are_written_with_the_discovery_rate_where_there_is_one(p, q, text):
    assert p_value_cell(p, q) == text
