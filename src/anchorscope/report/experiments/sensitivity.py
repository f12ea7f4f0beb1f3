"""How far the groups hang on choices: the layer that sorts, the rule that counts as a flip, the words cut, the seed."""

import re
from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.experiments.experiment_rows import estimate_of, find, present, rules_in, select, statistics
from anchorscope.report.experiments.panels import Forest, Lines, Marks, Panel, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import STABLE_KAPPA, Answer, Said, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import RULE, Column, Key, TableSpec, items, p_value, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, INK, Q_ANCHORED
from anchorscope.report.verdicts import above
from anchorscope.report.wording import NOTHING, estimate, percent, points

QUANTITIES: dict[str, tuple[str, dict[str, Any]]] = {
    "q_share": ("share of Q-Anchored", {"color": "#0072b2", "marker": "o", "markersize": 4.2, "markeredgewidth": 0.0}),
    "kappa": (
        "kappa with the run's own groups",
        {"color": "#d55e00", "marker": "s", "markersize": 4.0, "markeredgewidth": 0.0},
    ),
    "label_bias": (
        "Q share, true − false answers",
        {"color": "#009e73", "marker": "^", "markersize": 4.4, "markeredgewidth": 0.0},
    ),
}
"""What is drawn of every choice."""
_COLUMNS = (
    "dataset",
    "variant",
    "against",
    "assignment",
    "quantity",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "method",
    "kind",
    "choice",
    "moved",
    "side",
    "mark",
)
_DASHES: dict[str, Any] = {"plain": "-", "retained": (0, (1.2, 1.4))}
_OTHER_DASHES = (0, (4.0, 1.8))
_FACES = {"corrected": "white", "retained": "#9a9a9a"}
_MOVED, _SEED, _CHOICE = "layer", "seed", "rule"  # kinds of choices
_ALL_SEEDS = "seeds"


def moved_by(variant: str | None) -> int | None:
    """How far l* was moved, from "l* − 3"; None for other choices."""
    found = re.fullmatch(r"l\*(?: ([−+-]) (\d+))?", variant or "")
    if not found:
        return None
    return 0 if found[2] is None else int(found[2]) * (1 if found[1] == "+" else -1)


def _kind(variant: str) -> str:
    return _MOVED if moved_by(variant) is not None else _SEED if re.fullmatch(r"seed \d+|seeds", variant) else _CHOICE


def _rows(findings: Findings) -> pl.DataFrame:
    """Every row with the kind of choice that it is about, its words, and how far the sorting layer was moved."""
    table = statistics(findings, "sensitivity").drop_nulls("variant")
    variants = table["variant"].to_list()
    return table.with_columns(
        pl.Series("kind", [_kind(name) for name in variants], dtype=pl.String),
        pl.Series("moved", [moved_by(name) for name in variants], dtype=pl.Int64),
        choice=pl.col("variant").str.strip_prefix("rule: "),
    ).with_columns(near=pl.col("moved").abs() <= findings.n_layers // 4)


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(_rows(findings), quantity=tuple(QUANTITIES), truth="all")
    rows = rows.filter(pl.col("group").is_null() | (pl.col("group") == Q_ANCHORED))
    rows = rows.unique(["dataset", "variant", "assignment", "quantity"], keep="first", maintain_order=True)
    # Agreement with itself is no finding: that line has a gap at zero, and so two sides.
    side = pl.when(pl.col("quantity") != "kappa").then(0).otherwise(pl.col("moved").sign())
    mark = pl.format("{} {}", "quantity", pl.col("assignment").fill_null("plain"))
    return rows.with_columns(side=side, mark=mark).select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Panel]:
    moved = select(data, kind=_MOVED)
    every = max(1, moved["moved"].n_unique() // 4)
    series = [
        Series(
            {"quantity": quantity, "assignment": rule, "side": side},
            style | {"linestyle": _DASHES.get(rule, _OTHER_DASHES), "linewidth": 1.5, "markevery": every},
            words if rule == "plain" else "",
        )
        for quantity, (words, style) in QUANTITIES.items()
        for rule in rules_in(moved)
        for side in (-1, 0, 1)
    ]
    seeds = present(select(data, kind=_SEED), "variant")
    choices = {name: name for name in present(select(data, kind=_CHOICE), "choice")}
    return [
        Lines(
            series,
            "",
            "sorting layer moved",
            3.0,
            {"kind": _MOVED},
            "moved",
            x_label="Layers that l* is moved by",
            over_layers=False,
            empty="not available",
            finish=lambda axes, rows, place: axes.axvline(0, color=INK, linewidth=0.8, linestyle=":", zorder=1),
        ),
        Forest(
            "choice", choices, Marks("quantity", QUANTITIES), title="rule or cut", width=2.7, where={"kind": _CHOICE}
        ),
        Forest(
            "variant",
            {name: "all of them" if name == _ALL_SEEDS else name for name in seeds},
            _seed_marks(data),
            title="seed",
            width=2.0,
            where={"kind": _SEED},
        ),
    ]


def _seed_marks(data: pl.DataFrame) -> Marks:
    """The rules that a seed was tried with stand beside each other, told apart by their faces."""
    rules = rules_in(select(data, kind=_SEED))
    styles = {
        f"{quantity} {rule}": (
            words,
            style
            | (
                {}
                if rule == "plain"
                else {
                    "markerfacecolor": _FACES.get(rule, "white"),
                    "markeredgecolor": style["color"],
                    "markeredgewidth": 1.0,
                }
            ),
        )
        for quantity, (words, style) in QUANTITIES.items()
        for rule in rules
    }
    return Marks("mark", styles, 0.66 / max(1, len(styles)))


def _seeds_with_rule(rows: pl.DataFrame) -> pl.DataFrame:
    return select(rows, kind=_SEED).with_columns(
        choice=pl.format("{}, {}", "variant", pl.col("assignment").replace(RULES))
    )


def _seeds_alone(rows: pl.DataFrame) -> pl.DataFrame:
    return select(rows, kind=_SEED, measure="delta_p_reference", truth="all").with_columns(
        choice=pl.col("variant").replace({_ALL_SEEDS: "all of them: mean [range]"})
    )


def _lowest_kappa(rows: pl.DataFrame) -> str:
    found = select(rows, quantity="kappa", truth="all").sort("value").head(1).to_dicts()
    return f"{estimate(estimate_of(found[0]))} at {found[0]['variant']}" if found else NOTHING


def _share_at(end: int) -> Column:
    def cell(rows: pl.DataFrame) -> str:
        found = select(rows, quantity="q_share", truth="all").sort("value").to_dicts()
        return percent(estimate_of(found[end])) if found else NOTHING

    return ("smallest Q share" if end == 0 else "largest Q share", cell)


def _stable(rows: pl.DataFrame) -> Said | None:
    kappa = find(rows, variant=_ALL_SEEDS, quantity="kappa", truth="all")
    return told(kappa, above(kappa, STABLE_KAPPA), estimate, "mean and range over seeds")


_CHOICE_COLUMNS = (
    value("Q share", percent, quantity="q_share", truth="all"),
    items(quantity="q_share", truth="all"),
    value("true among Q", percent, quantity="true_share", group=Q_ANCHORED),
    value("true among A", percent, quantity="true_share", group=A_ANCHORED),
    value("Q share, true − false", percent, quantity="label_bias"),
    p_value(quantity="label_bias"),
    value("kappa", estimate, quantity="kappa", truth="all"),
)
SECTION = SectionSpec(
    slug="sensitivity",
    title="Sensitivity",
    rows=_rows,
    asks="Would another layer, rule, cut or seed have made other groups?",
    careful="Groups that change with the seed are made by the probes, not by the model. Two rules that agree may both "
    "be wrong.",
    answer=Answer(
        "The groups do not hang on the seed: agreement stays above kappa 0.6",
        "The groups hang on the seed: agreement falls below kappa 0.6",
        "Whether the groups hang on the seed (kappa above 0.6) is undecided",
        _stable,
    ),
    charts=(
        ChartSpec(
            "sensitivity",
            "how far the groups hang on choices",
            "Share of Q-Anchored items and agreement for other layers, rules and seeds",
            "The dotted line is the layer that the run used.",
            "Kappa: 1 is full agreement with the run's own groups, 0 is chance. Bands and lines: 95 % intervals; for "
            "all seeds together, the range. Left: solid plain, dashed corrected, dotted retained rule. Right: filled "
            "plain, open corrected, grey retained.",
            _drawn,
            _panels,
            gap=(1.6, 0.95),
            height=lambda data: (
                0.6
                + 0.3
                * max(
                    4, select(data, kind=_CHOICE)["choice"].n_unique(), select(data, kind=_SEED)["variant"].n_unique()
                )
            ),
        ),
    ),
    tables=(
        TableSpec(
            "Other rules, and the plain rule after other cuts; kappa with the plain rule",
            (Key("choice", "rule"),),
            _CHOICE_COLUMNS,
            lambda rows: select(rows, kind=_CHOICE),
        ),
        TableSpec(
            "Other seeds; kappa with the run's own seed", (Key("choice", "seed"),), _CHOICE_COLUMNS, _seeds_with_rule
        ),
        TableSpec(
            "ΔP at l* with other seeds, plain rule",
            (Key("choice", "seed"),),
            (
                *(value(group, points, aspect="", group=group) for group in GROUPS),
                value("Q − A", points, aspect="difference"),
            ),
            _seeds_alone,
        ),
        TableSpec(
            "The sorting layer moved: the lowest agreement within a quarter of the depth",
            (RULE,),
            (
                ("layers tried", lambda rows: str(rows["variant"].n_unique())),
                ("lowest kappa", _lowest_kappa),
                _share_at(0),
                _share_at(-1),
            ),
            lambda rows: select(rows, kind=_MOVED, near=True),
        ),
    ),
)
