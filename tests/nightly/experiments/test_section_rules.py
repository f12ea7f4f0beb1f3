"""The rules beside each other, what counts as a proved cell, and names that the registry must agree with."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.experiments.interventions import ZEROING
from anchorscope.experiments.layers import SECTION as LAYERS
from anchorscope.experiments.layers import significant
from anchorscope.report.findings import EXPERIMENT_SCHEMA
from anchorscope.report.panel_figure import experiment_charts
from report_further_synthetic import make_further

CHARTS = {chart.name: chart for chart in experiment_charts()}
CURVES = ("exact_tokens", "patching", "answer_only", "direct_edges", "zeroing")


@pytest.fixture(scope="module")
def many():
    """Five datasets, one of them without any further experiment."""
    return make_further(("popqa", "triviaqa", "hotpotqa", "mine", "nq"), lacking=("nq",))


@pytest.mark.parametrize("name", ["interventions", *CURVES])
def test_a_panel_per_rule(further, name):
    display = CHARTS[name].from_findings(further)
    assert len(display.plot().axes) == 4
    assert set(display.data["assignment"]) == {"plain", "corrected"}


def test_tables_have_a_line_per_rule(further):
    ((_, table),) = ZEROING.section(further).tables
    assert len(table.rows) == 2 * 2 * 2


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_figures_of_many_datasets_fit_a_page_and_tell_who_lacks_them(many, chart):
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
