"""The page of `anchorscope detect`: the detector to use, how it does on other data, all detectors, and the checks.

Which detector to use is decided in `detectors/recommend.py`. Differences are paired.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.recommend import Gain, Recommendation
from anchorscope.progress import Silent
from anchorscope.report.answer_card import AnswerCard, NextStep, Trust
from anchorscope.report.findings import select
from anchorscope.report.page import (
    Section,
    SectionFigure,
    SectionsPage,
    filled,
    write_json,
    write_sections_page,
)
from anchorscope.report.palette import INK, QUIET_INK, display_name
from anchorscope.report.panel_figure import (
    ChartSpec,
    ExperimentFigure,
    Forest,
    Lines,
    Place,
    Series,
    save_all,
)
from anchorscope.report.reading import Reading, Standing, readings_table
from anchorscope.report.verdicts import (
    CALIBRATED,
    NEGLIGIBLE_AUROC,
    TOSSED,
    Verdict,
    above,
    above_zero,
    all_of,
    below,
    p_from_interval,
)
from anchorscope.report.wording import (
    Table,
    capitalised,
    count,
    estimate,
    listing,
    number,
    p_value_cell,
    shown,
)
from anchorscope.stats.estimate import Estimate, holm

AUROC, BALANCED, NATURAL = "auroc", "balanced", "natural"
PROBE, CONFIDENCE, BOTH, AUTO = "probe", "confidence", "probe+confidence", "auto"
DIGITS = 3
"""Of an AUROC."""
_ALL_BUT, _ALL_OTHERS = "all but ", "all others"
_PROMPT = re.compile(r"(.+) \(prompt (.+)\)")
_GUESSING = 0.5
_PAPER = {("mop", PROBE): 0.033, ("pr-attention", PROBE): 0.056}
"""Gains over its probe that the paper reports, mean of eight cells without an interval."""
CONTESTS = (
    (BOTH, PROBE),
    *(
        (name, other)
        for name in ("mop", "pr-attention", AUTO)
        for other in (PROBE, BOTH)
    ),
    *(
        (name, f"{name}-{gate}")
        for name in ("mop", "pr-attention")
        for gate in ("random-gate", "constant-gate")
    ),
)
"""A detector and what it should beat, the controls of its gate included: p-values are corrected together."""
Cell = tuple[str, str]
"""What a detector learned from, and what it was tested on."""
Kind = Literal["same", "other", "left out", "prompt"]
"""Tested on the dataset learned from, another one, the only one not learned from, or questions put another way."""


@dataclass(frozen=True)
class DetectionContext:
    """Everything that is not in the tables."""

    model: str
    datasets: Mapping[str, str]
    """Each with what there is to say of its answers."""
    setting: str
    """Runs, seeds and seconds in a few words."""
    command: str
    bundles: Mapping[str, str] = field(default_factory=dict)
    """Detectors that were saved, each with its folder."""
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Detectors that are not in the tables, each with the reason."""


def shown_dataset(name: str) -> str:
    """A dataset, `all but` one, or one under another prompt, in names that a reader knows."""
    if name.startswith(_ALL_BUT):
        return _ALL_BUT + display_name(name.removeprefix(_ALL_BUT))
    prompted = _PROMPT.fullmatch(name)
    return (
        f"{display_name(prompted[1])} (prompt {prompted[2]})"
        if prompted
        else display_name(name)
    )


class DetectionResults:
    """The tables of one folder."""

    def __init__(self, folder: Path) -> None:
        self.detectors = pl.read_csv(folder / "detectors.csv", schema=DETECTOR_SCHEMA)
        self.differences = pl.read_csv(
            folder / "differences.csv", schema=DETECTOR_DIFFERENCE_SCHEMA
        )
        self.curves = pl.read_csv(
            folder / "detector_curves.csv", schema=DETECTOR_CURVE_SCHEMA
        )
        self.controls = pl.read_csv(
            folder / "controls.csv", schema=DETECTOR_CONTROL_SCHEMA
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Detectors that have a number, in the catalogue's order."""
        measured = set(self.detectors["detector"])
        return tuple(name for name in DETECTORS if name in measured)

    @cached_property
    def cells(self) -> Mapping[Kind, list[Cell]]:
        """Every pair of training and test data."""
        kinds: dict[Kind, list[Cell]] = {
            "same": [],
            "other": [],
            "left out": [],
            "prompt": [],
        }
        for train, test in (
            self.detectors.select("train", "test")
            .unique(maintain_order=True)
            .iter_rows()
        ):
            elsewhere: Kind = "left out" if train.startswith(_ALL_BUT) else "other"
            kinds[
                "prompt"
                if _PROMPT.fullmatch(test)
                else "same"
                if train == test
                else elsewhere
            ].append((train, test))
        return kinds

    def value(
        self,
        detector: str,
        cell: Cell,
        against: str = "",
        metric: str = AUROC,
        prevalence: str = BALANCED,
    ) -> Estimate | None:
        """A metric of a detector, or its paired difference to another."""
        key = (*cell, metric, prevalence)
        turned = self._estimates.get((against, detector, *key))
        if turned is not None:
            return Estimate(
                -turned.value, -turned.ci_high, -turned.ci_low, turned.n, turned.method
            )
        return self._estimates.get((detector, against, *key))

    def mean(
        self,
        detector: str,
        kind: Kind,
        against: str = "",
        metric: str = AUROC,
        prevalence: str = BALANCED,
    ) -> Estimate | None:
        """The mean over the cells of a kind that have it. Datasets are independent; pairs of them share answers."""
        each = [
            self.value(detector, cell, against, metric, prevalence)
            for cell in self.cells[kind]
        ]
        return mean_estimate(
            [value for value in each if value is not None], independent=kind == "same"
        )

    @cached_property
    def _estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """Values and differences; a value is a difference to nothing."""
        columns = (
            "detector",
            "against",
            "train",
            "test",
            "metric",
            "prevalence",
            "value",
            "ci_low",
            "ci_high",
            "n",
        )
        values = self.detectors.with_columns(against=pl.lit("")).select(columns)
        rows = pl.concat(
            [values, self.differences.rename({"difference": "value"}).select(columns)]
        )
        rows = rows.filter(pl.col("value").is_finite()).with_columns(
            pl.col("ci_low", "ci_high").fill_null(math.nan)
        )
        return {
            tuple(key): Estimate(value, low, high, n or 0, "bootstrap over groups")
            for *key, value, low, high, n in rows.iter_rows()
        }


def mean_estimate(values: Sequence[Estimate], independent: bool) -> Estimate | None:
    """The mean of estimates that err independently, or of those that may err together; None of none."""
    if len(values) < 2:
        return values[0] if values else None
    mean = math.fsum(value.value for value in values) / len(values)
    under, over = (
        [value.value - value.ci_low for value in values],
        [value.ci_high - value.value for value in values],
    )
    low, high = (
        math.hypot(*ends) if independent else math.fsum(ends) for ends in (under, over)
    )
    method = f"mean of {'independent datasets' if independent else 'pairs of datasets that share answers'}"
    n = sum(value.n for value in values)
    return Estimate(
        mean, mean - low / len(values), mean + high / len(values), n, method
    )


def signed(gain: Estimate | None) -> str:
    """+0.012 [−0.003, 0.027]."""
    positive = gain is not None and round(gain.value, DIGITS) > 0
    return f"{'+' * positive}{estimate(gain, DIGITS)}"


def passes_words(passes: int) -> str:
    """1 extra pass, 3 extra passes, no extra pass."""
    return (
        "no extra pass" if passes == 0 else f"{passes} extra pass{'es' * (passes != 1)}"
    )


def read_detection(
    results: DetectionResults,
    context: "DetectionContext",
    recommendation: Recommendation | None,
) -> list[Reading]:
    """Everything that can be read from the tables: tested differences, other data, controls."""
    gains = [results.mean(name, "same", other) for name, other in CONTESTS]
    p_values = [math.nan if gain is None else p_from_interval(gain) for gain in gains]
    readings = [
        _contest(
            name,
            other,
            gain,
            p,
            corrected,
            context.left_out.get(name)
            or context.left_out.get(other)
            or "it was not fitted",
        )
        for (name, other), gain, p, corrected in zip(
            CONTESTS, gains, p_values, holm(p_values), strict=True
        )
    ]
    chosen = recommendation.detector if recommendation else ""
    readings += [
        *_transfer_readings(results, chosen),
        *_permuted_labels(results),
        *_calibrated(results, chosen),
    ]
    return [replace(reading, model=context.model) for reading in readings]


def _reading(
    claim: str,
    topic: str,
    statement: str,
    numbers: str,
    value: Estimate | None,
    verdict: Verdict,
    standing: Standing,
    **p_values: Any,
) -> Reading:
    claim = claim.replace("-", "_").replace("+", "_and_")
    sentence = f"{capitalised(statement)}: {verdict}"
    about = (
        f"detection:{claim}",
        claim,
        topic,
        statement,
        sentence,
        numbers,
        value,
        verdict,
        "AUROC",
        topic,
        "",
    )
    return Reading(*about, standing=standing, **p_values)


def _contest(
    detector: str,
    other: str,
    gain: Estimate | None,
    p: float,
    corrected: float,
    absent: str,
) -> Reading:
    claim, topic = (
        f"{detector}_beats_{other.removeprefix(f'{detector}-')}",
        f"{detector} over {other}",
    )
    statement = f"the AUROC of {detector} is higher than that of {other}"
    if gain is None:
        return _reading(
            claim,
            topic,
            statement,
            f"not measured here: {absent}",
            None,
            "not measured",
            "tested",
        )
    reported = _PAPER.get((detector, other))
    paper = f"; the paper reports +{number(reported, DIGITS)}" if reported else ""
    numbers = f"{signed(gain)}; corrected p {p_value_cell(corrected)}{paper}"
    verdict = above_zero(gain, corrected, NEGLIGIBLE_AUROC)
    return _reading(
        claim,
        topic,
        statement,
        numbers,
        gain,
        verdict,
        "tested",
        p_value=p,
        p_corrected=corrected,
    )


def _transfer_readings(results: DetectionResults, chosen: str) -> Iterator[Reading]:
    """How the chosen detector and `auto` do on other data, beside confidence, which takes no extra pass."""
    checks: tuple[tuple[Kind, str, str], ...] = (
        ("other", "transfers", "on another dataset"),
        ("left out", "held_out", "on a dataset left out of training"),
        ("prompt", "other_prompt", "under another prompt"),
    )
    for detector in dict.fromkeys((chosen, AUTO)):
        for kind, claim, where in checks:
            gap = results.mean(detector, kind, CONFIDENCE)
            if gap is None:
                continue
            own, confidence = (
                estimate(results.mean(name, kind), DIGITS)
                for name in (detector, CONFIDENCE)
            )
            cells = len(results.cells[kind])
            numbers = f"AUROC {own}, {CONFIDENCE} {confidence}, difference {signed(gap)}; mean of {cells}"
            statement = f"{where}, {detector} is at most {number(NEGLIGIBLE_AUROC, 2)} below {CONFIDENCE}"
            verdict = above(gap, -NEGLIGIBLE_AUROC)
            topic = f"{detector} {where}"
            yield _reading(
                f"{detector}_{claim}",
                topic,
                statement,
                numbers,
                gap,
                verdict,
                "description",
            )


def _calibrated(results: DetectionResults, detector: str) -> Iterator[Reading]:
    errors = {
        f"{shown_dataset(cell[1])}, {prevalence}": ece
        for cell in results.cells["same"]
        for prevalence in (BALANCED, NATURAL)
        if (ece := results.value(detector, cell, metric="ece", prevalence=prevalence))
        is not None
    }
    if not errors:
        return
    worst = max(errors, key=lambda where: errors[where].value)
    small = sum(ece.value <= CALIBRATED for ece in errors.values())
    numbers = (
        f"the expected calibration error of {detector} is at most {number(CALIBRATED, 2)} in {small} of {len(errors)} "
        f"tests (on each dataset, with balanced and with natural shares of true answers); "
        f"largest {estimate(errors[worst], DIGITS)}, {worst}"
    )
    statement = f"the probabilities of {detector} are calibrated"
    verdict = all_of([below(ece, CALIBRATED) for ece in errors.values()])
    yield _reading(
        "calibrated",
        "calibration",
        statement,
        numbers,
        errors[worst],
        verdict,
        "control",
    )


def _permuted_labels(results: DetectionResults) -> Iterator[Reading]:
    """A detector passes within 0.01 of a half by its value, and fails beyond it where its interval leaves out 0.5."""
    rows = results.controls.filter(pl.col("value").is_finite()).with_columns(
        apart=(pl.col("value") - _GUESSING).abs()
    )
    if rows.is_empty():
        return
    near = rows["apart"] <= TOSSED
    low, high = (
        rows[end].fill_nan(None) for end in ("low", "high")
    )  # polars: NaN is above every number
    failed = ~near & ((low > _GUESSING) | (high < _GUESSING)).fill_null(False)
    farthest = rows.row(int(rows["apart"].arg_max() or 0), named=True)
    area = Estimate(
        farthest["value"],
        farthest["low"],
        farthest["high"],
        farthest["n"],
        "mean of permutations",
    )
    numbers = (
        f"{near.sum()} of {rows.height} AUROCs on permuted labels are within {number(TOSSED, 2)} of 0.50; "
        f"farthest {farthest['detector']} on "
        f"{shown_dataset(farthest['train'])}, {estimate(area, DIGITS)}; mean of {count(area.n)} permutations, "
        f"intervals corrected for all {rows.height} (Bonferroni)"
    )
    verdict: Verdict = "no" if failed.any() else "yes" if near.all() else "inconclusive"
    statement = "with permuted labels no detector tells true from false answers"
    yield _reading(
        "permuted_labels",
        "permuted labels",
        statement,
        numbers,
        area,
        verdict,
        "control",
    )


# The page

_LINES: dict[str, dict[str, Any]] = {
    CONFIDENCE: {"color": "#6f6f6f", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.6},
    PROBE: {"color": "#0072b2", "linestyle": (0, (5.0, 2.0)), "linewidth": 1.6},
    BOTH: {
        "color": "#d55e00",
        "linestyle": "-",
        "linewidth": 2.6,
    },  # auto may be the same line: both can be seen
    AUTO: {"color": "#111111", "linestyle": (0, (2.2, 2.2)), "linewidth": 1.6},
}
"""The detectors that are drawn as lines: distinct in grey and for the colour-blind."""
_LONGEST_NAME = 24


def write_detection_report(
    results: DetectionResults,
    context: DetectionContext,
    recommendation: Recommendation | None,
    folder: Path,
) -> AnswerCard:
    """Write figures/, observations.json, report.html and report.md; returns the card that the page begins with."""
    figures = detection_figures(results, context.model)
    save_all(figures, folder, Silent())
    readings = read_detection(results, context, recommendation)
    write_json(folder / "observations.json", [check.record() for check in readings])
    card = detection_card(results, readings, context, recommendation)
    drawn = {
        figure.name: (
            SectionFigure(
                figure.name,
                figure.chart.alt,
                figure.chart.caption,
                narrow=len(context.datasets) == 1,
            ),
        )
        for figure in figures
    }
    page = SectionsPage(
        "anchorscope detectors",
        f"{context.model}: which detector catches its false answers?",
        card,
        (
            f"{listing([display_name(name) for name in context.datasets])}: {context.setting}.",
        ),
        _sections(results, context, readings, drawn),
        drawn.get("detector_auroc", ()),
    )
    write_sections_page(page, folder, "report")
    return card


def detection_card(
    results: DetectionResults,
    readings: Sequence[Reading],
    context: DetectionContext,
    chosen: Recommendation | None,
) -> AnswerCard:
    """The detector to use, whether to trust the numbers, and how to use it."""
    bundle = context.bundles.get(chosen.detector) if chosen else None
    why = "From this folder, score new answers:"
    steps = (
        (NextStep(why, f"anchorscope score --detector {bundle} FILE"),)
        if bundle
        else ()
    )
    checks = {reading.claim: reading for reading in readings}
    permuted, calibrated = checks.get("permuted_labels"), checks.get("calibrated")
    failed = permuted is not None and permuted.verdict == "no"
    sentence = _answer_sentence(results, chosen, failed)
    measured = [check for check in (permuted, calibrated) if check is not None]
    reasons = [check.numbers.partition(";")[0] for check in measured]
    reasons += [] if permuted else ["the control with permuted labels was not run"]
    passed = len(measured) == 2 and all(check.verdict == "yes" for check in measured)
    trust = Trust("no" if failed else "yes" if passed else "partly", "; ".join(reasons))
    return AnswerCard(context.model, sentence, trust, next_steps=steps)


def _answer_sentence(
    results: DetectionResults, chosen: Recommendation | None, failed: bool
) -> str:
    """Use X: AUROC …; on other data …; what decided it. Nothing is recommended if the control failed."""
    if chosen is None:
        return "No detector can be recommended: none that can be saved was tested on the dataset that it learned from."
    away = results.mean(chosen.detector, "other")
    elsewhere = "not tested on other data"
    if chosen.elsewhere is not None:
        elsewhere = f"on other data {_gain_words(chosen.elsewhere)}"
    elif away is not None:
        elsewhere = f"on other data {number(away.value, DIGITS)}"
    passes = passes_words(DETECTORS[chosen.detector].passes)
    numbers = f"{chosen.detector} ({passes} per answer): AUROC {number(chosen.auroc.value, DIGITS)}; {elsewhere}"
    if failed:
        return f"No detector is recommended: the permuted-label control failed. It would be {numbers}."
    return f"Use {numbers}. {decision_words(chosen)}"


def decision_words(chosen: Recommendation) -> str:
    """The comparison that decided, with its interval and what it needed."""
    gain = chosen.decided_by
    if gain is None:
        return "No other detector was compared with it."
    together = (
        f" (95% interval for {chosen.comparisons} comparisons together)"
        if chosen.comparisons > 1
        else ""
    )
    gained = f"{_gain_words(gain)}{together}"
    price = "0, and it takes no extra pass"
    if gain.needed > 0:
        price = f"{number(gain.needed, DIGITS)}, the price of its extra passes"
    if gain.detector == chosen.detector:
        return f"It gains {gained}: all of the interval lies above {price}."
    names = {1: "No other", 2: "Neither of the others"}
    none = names.get(chosen.others, f"None of the {chosen.others} others")
    return (
        f"{none} is shown to gain more than its extra passes cost: {gain.detector} comes nearest with {gained}, and "
        f"not all of that interval lies above {price}."
    )


def _gain_words(gain: Gain) -> str:
    return f"{signed(gain.estimate)} over {gain.against}"


def _sections(
    results: DetectionResults,
    context: DetectionContext,
    readings: Sequence[Reading],
    drawn: Mapping[str, tuple[SectionFigure, ...]],
) -> list[Section]:
    other = [reading for reading in readings if reading.standing == "description"]
    checks = [
        reading
        for reading in readings
        if reading.standing != "description" and reading.estimate is not None
    ]
    tests = sum(reading.p_value is not None for reading in readings)
    about = {name: DETECTORS[name].about for name in results.names}
    about |= {name: f"not here: {reason}" for name, reason in context.left_out.items()}
    explained = (
        "Means over the datasets. AUROC: of as many true as false answers. Calibration error (ECE) and accuracy: at "
        "the natural share of true answers. Each 95% interval here is for one row; those that decide which detector "
        "to use hold for all comparisons together, and are wider. More metrics are in detectors.csv."
    )
    corrected = f", and the p-values of {count(tests)} tests corrected together (Holm)"
    tested = (
        "Mixture-of-Probes (MoP) and Pathway Reweighting (PR) are the paper's two detectors. Differences are paired"
        f"{corrected if tests > 1 else ''}. “No” also means that the interval leaves no room for a gain of 0.01."
    )
    methods = (
        "Everything is chosen inside the training folds; questions that share a subject are on the same side of a "
        "fold. Intervals come from a bootstrap over groups of questions; the mean over datasets has the interval of "
        "independent estimates, the mean over pairs of datasets the mean of their intervals."
    )
    warnings = (f"{capitalised(text.rstrip('.'))}." for text in context.warnings)
    trained = {display_name(name): words for name, words in context.datasets.items()}
    sections = [
        Section(
            "risk", "Risk and coverage", figures=drawn.get("detector_risk_coverage", ())
        ),
        Section(
            "other",
            "On other data",
            (),
            figures=drawn.get("detector_elsewhere", ()),
            tables=filled(("", readings_table(other, subjects=False))),
        ),
        Section(
            "table",
            "Every detector",
            (explained,),
            filled(("", detector_table(results))),
            more=(Section("what", "What each is", facts=about),),
        ),
        Section(
            "checks",
            "Checks",
            (tested, *warnings),
            filled(("", readings_table(checks, subjects=False))),
        ),
        Section("methods", "Methods", (methods,), facts=trained, docs="detectors.md"),
        Section("repeat", "Repeat", code=context.command),
    ]
    return [
        section
        for section in sections
        if section.tables or section.figures or section.text or section.code
    ]


def detector_table(results: DetectionResults) -> Table:
    """Every detector in the mean over the datasets: what it costs, how good it is, what it gains."""

    def auroc(value: Any) -> str:
        return shown(value, lambda measured: estimate(measured, DIGITS))

    rows = [
        (
            name,
            str(DETECTORS[name].passes),
            auroc(results.mean(name, "same")),
            *(
                shown(results.mean(name, "same", against), signed)
                for against in (CONFIDENCE, BOTH)
            ),
            auroc(results.mean(name, "other")),
            auroc(results.mean(name, "same", metric="ece", prevalence=NATURAL)),
            auroc(results.mean(name, "same", metric="accuracy@80", prevalence=NATURAL)),
        )
        for name in results.names
    ]
    head = (
        "AUROC",
        f"over {CONFIDENCE}",
        f"over {BOTH}",
        "AUROC, other data",
        "ECE",
        "accuracy, 80% accepted",
    )
    return Table(("detector", "passes", *head), tuple(rows))


# Figures


def detection_figures(results: DetectionResults, model: str) -> list[ExperimentFigure]:
    """The figures that have something to draw."""
    figures = []
    for chart in CHARTS:
        data = chart.rows(results)
        if data.height:
            names = tuple(data["dataset"].unique(maintain_order=True))
            figures.append(
                ExperimentFigure(data, (chart.note,), chart, model, 0, names)
            )
    return figures


def _short_name(name: str) -> str:
    words = shown_dataset(name)
    return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1]}…"


def _auroc_rows(results: DetectionResults) -> pl.DataFrame:
    """Tested on what was learned from; controls of other detectors are in the table only."""
    entries = [
        DETECTORS[name] for name in results.names if not DETECTORS[name].variant_of
    ]
    # A detector stands beside its passes; the blanks are such that SVG does not join them.
    lines = {entry.name: f"{entry.name}\u2002\u2002{entry.passes}" for entry in entries}
    kinds = {
        entry.name: "baseline" if entry.baseline else "detector" for entry in entries
    }
    rows = select(
        results.detectors, metric=AUROC, prevalence=BALANCED, detector=list(lines)
    )
    return rows.filter(
        (pl.col("train") == pl.col("test")) & pl.col("value").is_finite()
    ).select(
        pl.col("detector").replace_strict(lines, return_dtype=pl.String).alias("line"),
        pl.col("detector").replace_strict(kinds, return_dtype=pl.String).alias("kind"),
        "detector",
        pl.col("test").alias("dataset"),
        "value",
        "ci_low",
        "ci_high",
        "n",
    )


_SIZE = {"markersize": 4.2, "linewidth": 1.3, "markeredgewidth": 1.0}
_AUROC_MARKS = {
    "detector": _SIZE | {"color": INK, "marker": "o"},
    "baseline": _SIZE | {"color": QUIET_INK, "marker": "s", "markerfacecolor": "white"},
}


def _auroc_panels(data: pl.DataFrame) -> list[Forest]:
    """A line per detector."""
    lines = {line: line for line in data["line"].unique(maintain_order=True)}
    return [
        Forest(
            "line",
            lines,
            "AUROC",
            width=4.2 if data["dataset"].n_unique() == 1 else 2.6,
            by="kind",
            marks=_AUROC_MARKS,
            offset=0.0,
            null=0.5,
            set_apart=set(select(data, kind="baseline")["line"]),
            finish=_draw_guide,
        )
    ]


def _draw_guide(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """The AUROC of confidence through all lines, and how many answers there are."""
    axes.set_xlabel(f"AUROC, n = {max(rows['n']):,}")
    for auroc in select(rows, detector=CONFIDENCE)["value"]:
        axes.axvline(auroc, zorder=1.6, **_LINES[CONFIDENCE])


def _elsewhere_rows(results: DetectionResults) -> pl.DataFrame:
    """Differences to confidence on data that a detector did not learn from; a line per training data."""
    rows = select(
        results.differences,
        metric=AUROC,
        prevalence=BALANCED,
        against=CONFIDENCE,
        detector=[PROBE, AUTO],
    )
    order = {
        name: place
        for place, name in enumerate(
            results.detectors["test"].unique(maintain_order=True)
        )
    }
    rows = rows.drop_nans("difference").filter(
        pl.col("train") != pl.col("test"), ~pl.col("test").str.contains(_PROMPT.pattern)
    )
    return rows.sort(
        pl.col("test").replace_strict(order, return_dtype=pl.Int64), maintain_order=True
    ).select(
        "detector",
        pl.when(pl.col("train").str.starts_with(_ALL_BUT))
        .then(pl.lit(_ALL_OTHERS))
        .otherwise("train")
        .alias("line"),
        pl.col("test").alias("dataset"),
        pl.col("difference").alias("value"),
        "ci_low",
        "ci_high",
        "n",
    )


def _elsewhere_panels(data: pl.DataFrame) -> list[Forest]:
    known = data["dataset"].unique(maintain_order=True).to_list()
    lines = sorted(
        data["line"].unique(maintain_order=True),
        key=lambda line: [*known, line].index(line),
    )
    marks = {
        PROBE: _SIZE | {"color": _LINES[PROBE]["color"], "marker": "s"},
        AUTO: _AUROC_MARKS["detector"],
    }
    words, label = (
        {line: _short_name(line) for line in lines},
        "AUROC gain over confidence",
    )
    return [
        Forest(
            "line",
            words,
            label,
            width=2.6,
            by="detector",
            marks=marks,
            set_apart={_ALL_OTHERS},
        )
    ]


def _risk_panels(data: pl.DataFrame) -> list[Lines]:
    return [
        Lines(
            [
                Series({"detector": name}, line, name, "none")
                for name, line in _LINES.items()
            ],
            "risk (false among them)",
            width=_panel_side(data),
            x="coverage",
            y="risk",
            x_label="coverage (answers accepted)",
            over_layers=False,
            null=None,
            finish=_draw_square,
        )
    ]


def _panel_side(data: pl.DataFrame) -> float:
    return {1: 3.9, 2: 3.3, 3: 3.0}.get(data["dataset"].n_unique(), 2.6)


def _draw_square(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    axes.set(xlim=(-0.01, 1.01), xticks=np.linspace(0.0, 1.0, 6))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="both")


CHARTS = (
    ChartSpec(
        "detector_auroc",
        "telling true from false answers",
        "AUROC of every detector on every dataset with its interval; that of confidence as a line through all rows; "
        "baselines under a dashed line",
        "AUROC with 95% intervals: the chance that a true answer scores above a false one. Each detector is tested on "
        "the dataset that it learned from, on answers it has not seen.",
        "Out of fold; 0.5 is guessing. Bars: 95% intervals over groups. Dotted line: confidence, which takes no "
        "extra pass. The number beside a name: extra passes through the model per answer.",
        _auroc_rows,
        _auroc_panels,
        share="x",
        side_by_side=4,
        dataset_words=_short_name,
        height=lambda data: 0.205 * data["line"].n_unique() + 0.1,
        gap=0.22,
        labels=lambda data: max(0.0, 0.083 * max(map(len, data["line"])) - 0.45),
    ),
    ChartSpec(
        "detector_elsewhere",
        "learned on one dataset, tested on another",
        "AUROC of auto and of the single probe minus that of confidence on each test dataset, a line per training data",
        "Each panel is a test dataset, each line the training data: how far a detector's AUROC is above confidence's.",
        "Bars: 95% intervals of the paired difference. Left of 0, confidence alone is better.",
        _elsewhere_rows,
        _elsewhere_panels,
        share="x",
        side_by_side=4,
        dataset_words=_short_name,
        height=lambda data: 0.3 * data["line"].n_unique() + 0.1,
        gap=0.22,
        labels=lambda data: max(
            0.0, 0.083 * max(map(len, map(_short_name, data["line"]))) - 0.45
        ),
    ),
    ChartSpec(
        "detector_risk_coverage",
        "risk and coverage",
        "Risk (false among them) against coverage (answers accepted) of the main detectors, a panel per dataset",
        "Share of false answers among the accepted ones, as more are accepted.",
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk.",
        lambda results: select(results.curves, detector=list(_LINES)),
        _risk_panels,
        share="y",
        side_by_side=4,
        dataset_words=_short_name,
        height=_panel_side,
        gap=0.42,
        legend_columns=4,
    ),
)
"""In the order of the page."""
