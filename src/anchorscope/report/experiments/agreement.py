"""Do the ways to take the question away call the same items Q-Anchored?

Two rules that both follow the label agree without knowing anything of pathways. So every matrix is drawn for all
answers and again within the true and within the false ones, where the label cannot help.
"""

from functools import partial

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from anchorscope.catalogue import METHODS
from anchorscope.report.charts.heatmap import draw_heat, text_colour
from anchorscope.report.charts.layout import empty_panel
from anchorscope.report.experiments.experiment_rows import TRUTHS, estimate_of, select, statistics
from anchorscope.report.experiments.panels import Own, Place
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import Answer, Said, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import RULE, Key, TableSpec, items, p_value, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import Q_ANCHORED
from anchorscope.report.verdicts import above, all_of
from anchorscope.report.wording import estimate, number, percent

_COLUMNS = (
    "dataset",
    "assignment",
    "truth",
    "variant",
    "against",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "p_value",
    "q_value",
)
_CELL = 0.44
_ON_HATCH = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
_COUNTS = {"both": "both Q", "first_only": "first only", "second_only": "second only", "neither": "neither"}


def method_name(method: str) -> str:
    """A method in a few letters; what stands in brackets is said in the text."""
    return method.split(" (")[0]


def _methods(table: pl.DataFrame) -> list[str]:
    """The methods, first those that cut, then the others as they come."""
    both = pl.concat([table["variant"], table["against"]]).drop_nulls().unique(maintain_order=True).to_list()
    return [*(name for name in METHODS if name in both), *(name for name in both if name not in METHODS)]


def _drawn(findings: Findings) -> pl.DataFrame:
    return statistics(findings, "agreement", "kappa").select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Own]:
    methods = _methods(data)
    wide = max(2.0, 1.2 * _CELL * (len(methods) - 1))
    return [Own(partial(_draw_matrix, methods, truth), wide, words) for truth, words in TRUTHS.items()]


def _draw_matrix(methods: list[str], truth: str, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """Each pair once, below the diagonal: a method agrees with itself."""
    values = np.full((len(methods) - 1,) * 2, np.nan)
    not_significant = np.full(values.shape, False)
    for row in select(rows, truth=truth).to_dicts():
        low, high = sorted((methods.index(row["variant"]), methods.index(row["against"])))
        kappa = estimate_of(row)
        values[high - 1, low] = kappa.value
        not_significant[high - 1, low] = not (kappa.ci_low > 0 or kappa.ci_high < 0)
    draw_heat(axes, values, not_significant, 1.0, signs=False)
    axes.set_facecolor("none")
    axes.set_ylim(len(methods) - 1.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not np.isfinite(values).any():
        empty_panel(axes, "too few items")
    for row, column in np.argwhere(np.isfinite(values)):
        found = float(values[row, column])
        box = _ON_HATCH if not_significant[row, column] else None
        axes.text(
            column,
            row,
            number(found, 2),
            ha="center",
            va="center",
            color=text_colour(found, 1.0),
            bbox=box,
            fontsize=7.6,
        )
    first = place.column == 0
    axes.set_yticks(range(len(methods) - 1), [method_name(name) if first else "" for name in methods[1:]])
    axes.set_xticks(
        range(len(methods) - 1),
        [method_name(name) if place.last else "" for name in methods[:-1]],
        rotation=40,
        ha="right",
        rotation_mode="anchor",
    )
    axes.tick_params(length=0)


def _with_knockout(rows: pl.DataFrame) -> pl.DataFrame:
    """Pairs with the knockout, named; all pairs where it is not among the methods."""
    pairs = rows.drop_nulls("against").filter(pl.col("quantity").str.contains("^(kappa|n_)"))
    mine = pairs.filter((pl.col("variant") == METHODS[0]) | (pl.col("against") == METHODS[0]))
    kappas = select(pairs, quantity="kappa").select("dataset", "assignment").unique()
    pairs, mine = (one.join(kappas, on=kappas.columns, how="semi") for one in (pairs, mine))
    short = (pl.col(name).str.split(" (").list.first() for name in ("variant", "against"))
    return (mine if mine.height else pairs).with_columns(pair=pl.format("{} · {}", *short))


def _beyond_label(rows: pl.DataFrame) -> Said | None:
    """Every pair with the knockout, within true and within false answers."""
    pairs = select(_with_knockout(rows), quantity="kappa", truth=("true", "false"))
    found = sorted((estimate_of(row) for row in pairs.to_dicts()), key=lambda one: one.value)
    verdict = all_of([above(one, 0.0) for one in found])
    return told(found[0] if found else None, verdict, estimate, f"lowest kappa of {len(found)}:")


SECTION = SectionSpec(
    slug="agreement",
    title="Agreement",
    rows=lambda findings: statistics(findings, "agreement"),
    asks="Do other ways to take the question away call the same items Q-Anchored?",
    careful="Methods that push all verdicts towards “false” agree on true answers without any pathway: read kappa "
    "within truth.",
    answer=Answer(
        "Every method agrees with the knockout beyond chance, within true and within false answers",
        "Not every method agrees with the knockout within true and within false answers",
        "Whether every method agrees with the knockout beyond the label is undecided",
        _beyond_label,
    ),
    charts=(
        ChartSpec(
            "agreement",
            "do the methods agree?",
            "Kappa between every pair of methods, for all, true and false answers",
            "Each pair once, below the diagonal.",
            "Cohen's kappa of being called Q-Anchored: 0 is chance, 1 full agreement; hatched where its 95 % interval "
            "holds zero. Agreement that comes from the label alone vanishes within true and within false answers.",
            _drawn,
            _panels,
            by="assignment",
            by_words=str,
            labels=0.45,
            gap=0.2,
            foot=0.7,
            height=lambda data: max(1.2, _CELL * (len(_methods(data)) - 1)),
        ),
    ),
    tables=(
        TableSpec(
            "Pairs with the knockout; all pairs are in the figure and in experiments.csv",
            (RULE, Key("pair", "pair")),
            (
                value("kappa", estimate, quantity="kappa", truth="all"),
                value("within true", estimate, quantity="kappa", truth="true"),
                value("within false", estimate, quantity="kappa", truth="false"),
                p_value("q", quantity="kappa", truth="all"),
                *(
                    value(
                        head, lambda found: number(found.value, 0) if found else "", quantity=f"n_{name}", truth="all"
                    )
                    for name, head in _COUNTS.items()
                ),
            ),
            _with_knockout,
        ),
        TableSpec(
            "What each method calls Q-Anchored, and how well its own score finds the knockout's (AUC)",
            (RULE, Key("variant", "method", {name: name for name in METHODS})),
            (
                value("Q share", percent, quantity="q_share", truth="all"),
                value("of true answers", percent, quantity="q_share", truth="true"),
                value("of false answers", percent, quantity="q_share", truth="false"),
                value("true among Q", percent, quantity="true_share", group=Q_ANCHORED),
                value("AUC", estimate, quantity="auc", truth="all"),
                value("AUC, true", estimate, quantity="auc", truth="true"),
                value("AUC, false", estimate, quantity="auc", truth="false"),
                items(quantity="q_share", truth="all"),
            ),
            lambda rows: select(rows, quantity=("q_share", "true_share", "auc")),
        ),
    ),
)
