"""The tables of `anchorscope detect` and their checks: the detector to use, differences, other data, controls.

`probe+confidence` is the detector to beat. Another one takes its place if, in the mean over the datasets, it gains more
than its further passes cost (0.01 AUROC each, a convention; fewer passes count in its favour), with p-values of all
candidates corrected together (Holm). Differences are paired: the same items in the same resamples.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import polars as pl

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading, Standing
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
from anchorscope.report.wording import count, estimate, number, p_value_cell
from anchorscope.stats.estimate import Estimate, holm

AUROC, BALANCED, NATURAL = "auroc", "balanced", "natural"
PROBE, CONFIDENCE, BOTH, AUTO = "probe", "confidence", "probe+confidence", "auto"
DIGITS = 3
"""Of an AUROC."""
_ALL_BUT = "all but "
_PROMPT = re.compile(r"(.+) \(prompt (.+)\)")
_GUESSING = 0.5
_PAPER = {("mop", PROBE): 0.033, ("pr-attention", PROBE): 0.056}
"""Gains over its probe that the paper reports, mean of eight cells without an interval."""
CONTESTS = (
    (BOTH, PROBE),
    *((name, other) for name in ("mop", "pr-attention", AUTO) for other in (PROBE, BOTH)),
    *((name, f"{name}-{gate}") for name in ("mop", "pr-attention") for gate in ("random-gate", "constant-gate")),
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
    """What repeats it."""
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
    return f"{display_name(prompted[1])} (prompt {prompted[2]})" if prompted else display_name(name)


@dataclass(frozen=True)
class DetectionResults:
    """detectors.csv, differences.csv, detector_curves.csv and controls.csv of one folder."""

    detectors: pl.DataFrame
    differences: pl.DataFrame
    curves: pl.DataFrame
    controls: pl.DataFrame

    @classmethod
    def read(cls, folder: Path) -> "DetectionResults":
        """Read the tables."""
        files = {
            "detectors": DETECTOR_SCHEMA,
            "differences": DETECTOR_DIFFERENCE_SCHEMA,
            "detector_curves": DETECTOR_CURVE_SCHEMA,
            "controls": DETECTOR_CONTROL_SCHEMA,
        }
        return cls(*(pl.read_csv(folder / f"{name}.csv", schema=schema) for name, schema in files.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Detectors that have a number, in the catalogue's order."""
        measured = set(self.detectors["detector"])
        return tuple(name for name in DETECTORS if name in measured)

    @cached_property
    def cells(self) -> Mapping[Kind, list[Cell]]:
        """Every pair of training and test data."""
        kinds: dict[Kind, list[Cell]] = {"same": [], "other": [], "left out": [], "prompt": []}
        for train, test in self.detectors.select("train", "test").unique(maintain_order=True).iter_rows():
            elsewhere: Kind = "left out" if train.startswith(_ALL_BUT) else "other"
            kinds["prompt" if _PROMPT.fullmatch(test) else "same" if train == test else elsewhere].append((train, test))
        return kinds

    def value(
        self, detector: str, cell: Cell, against: str = "", metric: str = AUROC, prevalence: str = BALANCED
    ) -> Estimate | None:
        """A metric of a detector, or its paired difference to another."""
        key = (*cell, metric, prevalence)
        turned = self._estimates.get((against, detector, *key))
        if turned is not None:
            return Estimate(-turned.value, -turned.ci_high, -turned.ci_low, turned.n, turned.method)
        return self._estimates.get((detector, against, *key))

    def mean(
        self, detector: str, kind: Kind, against: str = "", metric: str = AUROC, prevalence: str = BALANCED
    ) -> Estimate | None:
        """The mean over the cells of a kind that have it. Datasets are independent; pairs of them share answers."""
        each = [self.value(detector, cell, against, metric, prevalence) for cell in self.cells[kind]]
        return mean_estimate([value for value in each if value is not None], independent=kind == "same")

    @cached_property
    def _estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """Values and differences; a value is a difference to nothing."""
        columns = ("detector", "against", "train", "test", "metric", "prevalence", "value", "ci_low", "ci_high", "n")
        values = self.detectors.with_columns(against=pl.lit("")).select(columns)
        rows = pl.concat([values, self.differences.rename({"difference": "value"}).select(columns)])
        rows = rows.filter(pl.col("value").is_finite()).with_columns(pl.col("ci_low", "ci_high").fill_null(math.nan))
        return {
            tuple(key): Estimate(value, low, high, n or 0, "bootstrap over groups")
            for *key, value, low, high, n in rows.iter_rows()
        }


def mean_estimate(values: Sequence[Estimate], independent: bool) -> Estimate | None:
    """The mean of estimates that err independently, or of those that may err together; None of none."""
    if len(values) < 2:
        return values[0] if values else None
    mean = math.fsum(value.value for value in values) / len(values)
    under, over = [value.value - value.ci_low for value in values], [value.ci_high - value.value for value in values]
    low, high = (math.hypot(*ends) if independent else math.fsum(ends) for ends in (under, over))
    method = f"mean of {'independent datasets' if independent else 'pairs of datasets that share answers'}"
    n = sum(value.n for value in values)
    return Estimate(mean, mean - low / len(values), mean + high / len(values), n, method)


def signed(gain: Estimate | None) -> str:
    """+0.012 [−0.003, 0.027]."""
    positive = gain is not None and round(gain.value, DIGITS) > 0
    return f"{'+' * positive}{estimate(gain, DIGITS)}"


def passes_words(passes: int) -> str:
    """1 extra pass, 3 extra passes, no extra pass."""
    return "no extra pass" if passes == 0 else f"{passes} extra pass{'es' * (passes != 1)}"


@dataclass(frozen=True)
class Recommendation:
    """The detector to use, and what speaks for it."""

    detector: str
    auroc: Estimate
    """In the mean over the datasets that it learned from and was tested on."""
    reason: str


def recommend(results: DetectionResults) -> Recommendation | None:
    """The detector to use; None where no detector was tested on what it learned from."""
    means = {name: results.mean(name, "same") for name in results.names if not DETECTORS[name].variant_of}
    aurocs = {name: mean for name, mean in means.items() if mean is not None}
    if not aurocs:
        return None
    reference = next((name for name in (BOTH, PROBE, CONFIDENCE) if name in aurocs), None)
    if reference is None:
        best = max(aurocs, key=lambda name: aurocs[name].value)
        return Recommendation(best, aurocs[best], f"{BOTH} was not measured; this is the highest")
    gains = {name: gain for name in aurocs if (gain := results.mean(name, "same", reference)) is not None}
    price = {name: NEGLIGIBLE_AUROC * (DETECTORS[name].passes - DETECTORS[reference].passes) for name in gains}
    net = {name: replace(gain, value=gain.value - price[name]) for name, gain in gains.items()}
    p_values = zip(net, holm([p_from_interval(gain) for gain in net.values()]), strict=True)
    better = [name for name, p in p_values if above_zero(net[name], p) == "yes"]
    if not better:
        reason = (
            f"none of {len(gains)} others is better by more than its passes cost" if gains else "it is the only one"
        )
        return Recommendation(reference, aurocs[reference], reason)
    best = max(better, key=lambda name: net[name].value)
    passes = f" with {passes_words(DETECTORS[best].passes)}" if price[best] else ""
    return Recommendation(best, aurocs[best], f"{signed(gains[best])} against {reference}{passes}")


def read_detection(results: DetectionResults, left_out: Mapping[str, str], model: str = "") -> list[Reading]:
    """Everything that can be read from the tables: tested differences, other data, controls."""
    gains = [results.mean(name, "same", other) for name, other in CONTESTS]
    p_values = [math.nan if gain is None else p_from_interval(gain) for gain in gains]
    readings = [
        _contest(name, other, gain, p, corrected, left_out.get(name) or left_out.get(other) or "it was not fitted")
        for (name, other), gain, p, corrected in zip(CONTESTS, gains, p_values, holm(p_values), strict=True)
    ]
    recommendation = recommend(results)
    chosen = recommendation.detector if recommendation else ""
    readings += [*_transfer_readings(results, chosen), *_permuted_labels(results), *_calibrated(results, chosen)]
    return [replace(reading, model=model) for reading in readings]


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
    sentence = f"{statement[:1].upper()}{statement[1:]}: {verdict}"
    about = (f"detection:{claim}", claim, topic, statement, sentence, numbers, value, verdict, "AUROC", topic, "")
    return Reading(*about, standing=standing, **p_values)


def _contest(detector: str, other: str, gain: Estimate | None, p: float, corrected: float, absent: str) -> Reading:
    claim, topic = f"{detector}_beats_{other.removeprefix(f'{detector}-')}", f"{detector} over {other}"
    statement = f"the AUROC of {detector} is higher than that of {other}"
    if gain is None:
        return _reading(claim, topic, statement, f"not measured here: {absent}", None, "not measured", "tested")
    numbers = f"{signed(gain)}; corrected p {p_value_cell(corrected)}"
    if (detector, other) in _PAPER:
        numbers += f"; the paper reports +{number(_PAPER[detector, other], DIGITS)}"
    verdict = above_zero(gain, corrected, NEGLIGIBLE_AUROC)
    return _reading(claim, topic, statement, numbers, gain, verdict, "tested", p_value=p, p_corrected=corrected)


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
            own, confidence = (estimate(results.mean(name, kind), DIGITS) for name in (detector, CONFIDENCE))
            numbers = (
                f"AUROC {own}, {CONFIDENCE} {confidence}, difference {signed(gap)}; mean of {len(results.cells[kind])}"
            )
            statement = f"{where}, {detector} is at most {number(NEGLIGIBLE_AUROC, 2)} below {CONFIDENCE}"
            verdict = above(gap, -NEGLIGIBLE_AUROC)
            topic = f"{detector} {where}"
            yield _reading(f"{detector}_{claim}", topic, statement, numbers, gap, verdict, "description")


def _calibrated(results: DetectionResults, detector: str) -> Iterator[Reading]:
    errors = {
        f"{shown_dataset(cell[1])}, {prevalence}": ece
        for cell in results.cells["same"]
        for prevalence in (BALANCED, NATURAL)
        if (ece := results.value(detector, cell, metric="ece", prevalence=prevalence)) is not None
    }
    if not errors:
        return
    worst = max(errors, key=lambda where: errors[where].value)
    small = sum(ece.value <= CALIBRATED for ece in errors.values())
    numbers = (
        f"expected calibration error at most {number(CALIBRATED, 2)} in {small} of {len(errors)} (datasets × "
        f"prevalences); largest {estimate(errors[worst], DIGITS)}, {worst}"
    )
    statement = f"the probabilities of {detector} are calibrated"
    verdict = all_of([below(ece, CALIBRATED) for ece in errors.values()])
    yield _reading("calibrated", "calibration", statement, numbers, errors[worst], verdict, "control")


def _permuted_labels(results: DetectionResults) -> Iterator[Reading]:
    """A detector passes within 0.01 of a half by its value, and fails beyond it where its interval leaves out 0.5."""
    rows = results.controls.filter(pl.col("value").is_finite()).with_columns(apart=(pl.col("value") - _GUESSING).abs())
    if rows.is_empty():
        return
    near = rows["apart"] <= TOSSED
    low, high = (rows[end].fill_nan(None) for end in ("low", "high"))  # polars: NaN is above every number
    failed = ~near & ((low > _GUESSING) | (high < _GUESSING)).fill_null(False)
    farthest = rows.row(int(rows["apart"].arg_max() or 0), named=True)
    area = Estimate(farthest["value"], farthest["low"], farthest["high"], farthest["n"], "mean of permutations")
    numbers = (
        f"{near.sum()} of {rows.height} within {number(TOSSED, 2)} of 0.50; farthest {farthest['detector']} on "
        f"{shown_dataset(farthest['train'])}, {estimate(area, DIGITS)}; mean of {count(area.n)} permutations, "
        f"intervals corrected for all {rows.height} (Bonferroni)"
    )
    verdict: Verdict = "no" if failed.any() else "yes" if near.all() else "inconclusive"
    statement = "with permuted labels no detector tells true from false answers"
    yield _reading("permuted_labels", "permuted labels", statement, numbers, area, verdict, "control")
