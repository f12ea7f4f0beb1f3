"""The retained rule beside the others, what counts as a proved cell, and names that the registry must agree with."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.experiments.intervention_curves import ZEROING
from anchorscope.report.experiments.layers import SECTION as LAYERS
from anchorscope.report.experiments.layers import significant
from anchorscope.report.experiments.section import experiment_charts, experiment_sections
from anchorscope.report.findings import EXPERIMENT_SCHEMA
from report_further_synthetic import make_further

CHARTS = {chart.name: chart for chart in experiment_charts()}
CURVES = ("exact_tokens", "patching", "answer_only", "direct_edges", "zeroing")
REFIT = -98.7
"""What the probe trained on cut states measures; belongs to the main table and nowhere here."""


def again_as_retained(table: pl.DataFrame) -> pl.DataFrame:
    """The corrected rows a second time, as another rule's."""
    rows = table.filter(pl.col("assignment") == "corrected").with_columns(assignment=pl.lit("retained"))
    return pl.concat([table, rows])


def with_retained(datasets: tuple[str, ...], lacking: tuple[str, ...] = ()):
    """A run whose probes were also trained on cut states."""
    run = make_further(datasets, lacking=lacking)
    curves, summary = again_as_retained(run.curves), again_as_retained(run.summary)
    compared = pl.col("experiment") == "agreement"  # only the knockout has such a probe: its calls have no pair
    mine, of_knockout = pl.col("assignment") == "retained", pl.col("intervention") == "knockout"
    refitted = curves.filter(mine & of_knockout).with_columns(variant=pl.lit("refit"), delta_p=pl.lit(REFIT))
    of_refit = summary.filter(mine & of_knockout & (pl.col("quantity") == "delta_p_reference"))
    of_refit = of_refit.with_columns(quantity=pl.lit("delta_p_refit"), value=pl.lit(REFIT))
    return replace(
        run,
        curves=pl.concat([curves, refitted]),
        summary=pl.concat([summary, of_refit]),
        experiments=again_as_retained(run.experiments).filter(~mine | (pl.col("quantity") != "kappa") | ~compared),
    )


@pytest.fixture(scope="module")
def three():
    """Two datasets, three rules."""
    return with_retained(("popqa", "triviaqa"))


@pytest.fixture(scope="module")
def many():
    """Five datasets, one of them without any further experiment; three rules."""
    return with_retained(("popqa", "triviaqa", "hotpotqa", "mine", "nq"), lacking=("nq",))


@pytest.mark.parametrize("name", ["interventions", *CURVES])
def test_a_panel_per_rule_that_the_run_has(further, three, name):
    for run, columns in ((further, 2), (three, 3)):
        display = CHARTS[name].from_findings(run)
        titles = [axes.get_title() for axes in display.plot().axes]
        assert len(titles) == 2 * columns
        assert sum("retained" in title for title in titles) == 2 * (columns - 2)
        assert set(display.data["assignment"]) == set(("plain", "corrected", "retained")[:columns])


def test_what_the_refitted_probe_measures_is_not_mixed_in(three):
    assert REFIT not in CHARTS["patching"].from_findings(three).data["delta_p"].to_list()
    assert REFIT not in CHARTS["interventions"].from_findings(three).data["value"].to_list()
    cells = [
        cell
        for section in experiment_sections(three)
        for _, table in section.tables
        for row in table.rows
        for cell in row
    ]
    assert not any("98.7" in cell for cell in cells)


def test_tables_have_a_line_per_rule(further, three):
    for run, rules in ((further, 2), (three, 3)):
        ((_, table),) = ZEROING.section(run).tables
        assert len(table.rows) == 2 * 2 * rules
    ((_, table),) = ZEROING.section(three).tables
    flips = {row[2]: row[-3:] for row in table.rows if "zero" in row[1]}
    assert flips["retained rule"] == flips["corrected rule"]
    assert "–" not in flips["retained rule"]


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_figures_of_three_rules_and_many_datasets_fit_a_page_and_tell_who_lacks_them(many, chart):
    display = chart.from_findings(many)
    width, height = display.plot().get_size_inches()
    assert width < 16
    assert height < 22
    assert set(display.data["dataset"]) == {"popqa", "triviaqa", "hotpotqa", "mine"}
    assert any("Not measured here: NQ" in note for note in display.notes)


@settings(max_examples=60)
@given(st.none() | st.floats(0, 1), st.none() | st.floats(allow_infinity=False))
def test_a_cell_is_proved_if_told_from_zero_and_not_small(q, size):
    row = dict.fromkeys(EXPERIMENT_SCHEMA) | {"q_value": q, "effect_size": size}
    found = significant(pl.DataFrame([row], schema=EXPERIMENT_SCHEMA)).height
    assert found == (q is not None and q < 0.05 and not (size is not None and abs(size) < 0.2))


def test_small_cells_are_hatched_and_not_counted(further):
    cells = (pl.col("experiment") == "layers") & (pl.col("quantity") == "delta_p")

    def hatched_and_told(size: float) -> tuple[int, int]:
        sizes = pl.when(cells).then(size).otherwise(pl.col("effect_size"))
        run = replace(further, experiments=further.experiments.with_columns(effect_size=sizes))
        (hatch,) = CHARTS["layers"].from_findings(run).plot().axes[0].patches
        (table,) = [table for title, table in LAYERS.section(run).tables if title.startswith("Cells")]
        return len(hatch.get_path().vertices) // 5, int(table.rows[0][4]) + int(table.rows[0][5])

    n = further.n_layers * (further.n_layers + 1) // 2
    hatched, told = hatched_and_told(-0.5)
    assert hatched + told == n
    assert told > 10
    assert hatched_and_told(-0.19) == (n, 0)
    assert any("0.2 standard deviations" in note for note in CHARTS["layers"].from_findings(further).notes)


def test_other_cuts_stand_among_the_rules_and_rules_of_a_seed_apart(three):
    plain = three.experiments.filter(pl.col("variant") == "rule: plain").with_columns(variant=pl.lit("cut: subject"))
    chart = CHARTS["sensitivity"].from_findings(replace(three, experiments=pl.concat([three.experiments, plain])))
    figure = chart.plot()
    assert "cut: subject" in [label.get_text() for label in figure.axes[1].get_yticklabels()]
    places = [(line.get_ydata()[0], line.get_color()) for line in figure.axes[2].lines if line.get_marker() != "None"]
    assert len(set(places)) == len(places)
