"""The tables of `anchorscope detect` and their checks: the detector to use, differences, other data, controls.

`probe+confidence` is the detector to beat. Another one takes its place if it is better in the mean over the datasets
(p-values of all candidates corrected together, Holm) and gains more than its further passes cost, 0.01 AUROC each: a
convention. If nothing is better, a cheaper detector takes its place if it is less than 0.01 worse with 95 % confidence.
Differences are paired: the same items in the same resamples.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS, DetectorEntry
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
    difference,
    gained,
    has_interval,
    p_from_interval,
)
from anchorscope.report.wording import count, estimate, number, p_value_cell
from anchorscope.stats.estimate import Estimate, holm

AUROC, BALANCED, NATURAL = "auroc", "balanced", "natural"
PROBE, CONFIDENCE, BOTH, AUTO = "probe", "confidence", "probe+confidence", "auto"
_ALL_BUT = "all but "
_PROMPT = re.compile(r"(.+) \(prompt (.+)\)")


@dataclass(frozen=True)
class DatasetFacts:
    """The answers of one dataset that detectors were trained or tested on."""

    name: str
    n_used: int
    """Answers in the balanced sample."""
    n_true: int
    """True ones among them."""
    n_graded: int
    """All answers that could be graded: the natural prevalence is measured on these."""
    natural_prevalence: float
    """Share of true answers among them."""
    target_only: bool = False
    """Whether it has too few true answers to learn from."""


@dataclass(frozen=True)
class DetectionContext:
    """Everything that is not in the tables."""

    model: str
    runs: tuple[str, ...]
    """Folders of the runs, as the command named them."""
    datasets: tuple[DatasetFacts, ...]
    seeds: tuple[int, ...]
    """Of the folds."""
    seconds: float
    command: str
    """What repeats it."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """Detectors that were saved, each with its folder."""
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Detectors and datasets that are not in the tables, each with the reason."""


Cell = tuple[str, str]
"""What a detector learned from, and what it was tested on."""


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
    datasets: tuple[str, ...]
    """In display order."""

    @classmethod
    def read(cls, folder: Path, datasets: Sequence[str] = ()) -> "DetectionResults":
        """Read the tables; `datasets` come first, others as they come."""
        detectors = pl.read_csv(folder / "detectors.csv", schema=DETECTOR_SCHEMA)
        differences = pl.read_csv(folder / "differences.csv", schema=DETECTOR_DIFFERENCE_SCHEMA)
        curves = pl.read_csv(folder / "detector_curves.csv", schema=DETECTOR_CURVE_SCHEMA)
        controls = pl.read_csv(folder / "controls.csv", schema=DETECTOR_CONTROL_SCHEMA)
        tested = [name for name in detectors["test"].unique(maintain_order=True) if not _PROMPT.fullmatch(name)]
        ordered = dict.fromkeys((*(name for name in datasets if name in tested), *tested))
        return cls(detectors, differences, curves, controls, tuple(ordered))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Detectors that have a number, in the catalogue's order; unknown ones last."""
        order = list(DETECTORS)
        measured = self.detectors["detector"].unique(maintain_order=True)
        return tuple(sorted(measured, key=lambda name: order.index(name) if name in order else len(order)))

    @cached_property
    def cells(self) -> list[Cell]:
        """Every pair of training and test data."""
        return self.detectors.select("train", "test").unique(maintain_order=True).rows()

    @cached_property
    def in_domain(self) -> list[Cell]:
        """Tested on the dataset that was learned from, on other folds."""
        return [(train, test) for train, test in self.cells if train == test]

    @cached_property
    def elsewhere(self) -> list[Cell]:
        """One dataset learned, another one tested."""
        return [pair for pair in self.cells if pair[0] != pair[1] and set(pair) <= set(self.datasets)]

    @cached_property
    def held_out(self) -> list[Cell]:
        """The tested dataset was the only one not learned from."""
        return [(train, test) for train, test in self.cells if train == f"{_ALL_BUT}{test}"]

    @cached_property
    def prompted(self) -> list[Cell]:
        """The tested questions were put another way."""
        return [(train, test) for train, test in self.cells if _PROMPT.fullmatch(test)]

    def value(self, detector: str, cell: Cell, metric: str = AUROC, prevalence: str = BALANCED) -> Estimate | None:
        """One number of detectors.csv."""
        return self._values.get((detector, *cell, metric, prevalence))

    def difference(self, detector: str, against: str, cell: Cell) -> Estimate | None:
        """AUROC of `detector` minus that of `against`, paired; or through a third one with which both are paired.

        Of two such ways, the one with the narrower interval.
        """
        where, pairs = (*cell, AUROC, BALANCED), self._differences
        if (turned := pairs.get((against, detector, *where))) is not None:
            return Estimate(-turned.value, -turned.ci_high, -turned.ci_low, turned.n, turned.method)
        if (paired := pairs.get((detector, against, *where))) is not None:
            return paired
        gains = [[pairs.get((name, third, *where)) for name in (detector, against)] for third in (PROBE, BOTH)]
        ways = [way for gain in gains if (way := difference(*gain)) is not None]
        return min(ways, key=lambda way: (not has_interval(way), way.ci_high - way.ci_low), default=None)

    def mean(self, detector: str, cells: Iterable[Cell], against: str | None = None) -> Estimate | None:
        """The AUROC, or its difference to `against`, in the mean over the cells that have it.

        Datasets are independent. Pairs of datasets share answers, so that their mean has the mean of their intervals.
        """
        cells = list(cells)
        each = [self.difference(detector, against, cell) if against else self.value(detector, cell) for cell in cells]
        independent = all(train == test for train, test in cells)
        return mean_estimate([value for value in each if value is not None], independent)

    @cached_property
    def passes(self) -> Mapping[str, int]:
        """Passes per answer, as measured here."""
        return dict(self.detectors.select("detector", "passes").drop_nulls().iter_rows())

    @cached_property
    def _values(self) -> Mapping[tuple[str, ...], Estimate]:
        return _estimates(self.detectors, ("detector", "train", "test", "metric", "prevalence"))

    @cached_property
    def _differences(self) -> Mapping[tuple[str, ...], Estimate]:
        table = self.differences.rename({"difference": "value"})
        return _estimates(table, ("detector", "against", "train", "test", "metric", "prevalence"))

    @cached_property
    def control_values(self) -> Mapping[tuple[str, ...], Estimate]:
        """Rows of controls.csv, by control, detector and dataset."""
        return _estimates(self.controls.rename({"low": "ci_low", "high": "ci_high"}), ("control", "detector", "train"))


def entry_of(detector: str) -> DetectorEntry:
    """What the catalogue says of a detector; one that it does not know is what it is called."""
    return DETECTORS.get(detector) or DetectorEntry(detector, "not in the catalogue", 0)


def mean_estimate(values: Sequence[Estimate], independent: bool) -> Estimate | None:
    """The mean of estimates that err independently, or of those that may err together; None of none."""
    if len(values) < 2:
        return values[0] if values else None
    mean = math.fsum(one.value for one in values) / len(values)
    under, over = [one.value - one.ci_low for one in values], [one.ci_high - one.value for one in values]
    low, high = (math.hypot(*ends) if independent else math.fsum(ends) for ends in (under, over))
    method = f"mean of {'independent datasets' if independent else 'pairs of datasets that share answers'}"
    return Estimate(mean, mean - low / len(values), mean + high / len(values), sum(one.n for one in values), method)


def _estimates(table: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], Estimate]:
    """Rows that have a value, by their keys."""
    estimates = {}
    for *key, value, low, high, n in table.select(*keys, "value", "ci_low", "ci_high", "n").iter_rows():
        low, high = (math.nan if end is None else float(end) for end in (low, high))
        if value is not None and math.isfinite(value):
            estimates[tuple(key)] = Estimate(float(value), low, high, n or 0, "bootstrap over groups")
    return estimates


# Checks

DIGITS = 3
"""Of an AUROC."""
PERMUTED = "permuted-labels"
"""A control, as controls.csv names it."""
_GUESSING = 0.5
_PAPER = {("mop", PROBE): 0.033, ("pr-attention", PROBE): 0.056}
"""Gains over its probe that the paper reports, mean of eight cells without an interval."""
CONTESTS = (
    (BOTH, PROBE),
    ("mop", PROBE),
    ("mop", BOTH),
    ("pr-attention", PROBE),
    ("pr-attention", BOTH),
    (AUTO, PROBE),
    (AUTO, BOTH),
)
"""A detector and what it should beat: p-values are corrected together."""
GATES = tuple((name, f"{name}-{gate}") for name in ("mop", "pr-attention") for gate in ("random-gate", "constant-gate"))
"""Does the gate add to a second probe? Each is decided by its interval alone."""


@dataclass(frozen=True)
class Recommendation:
    """The detector to use, and what speaks for it."""

    detector: str
    auroc: Estimate
    """In the mean over the datasets that it learned from and was tested on."""
    reason: str


def read_detection(results: DetectionResults, left_out: Mapping[str, str], model: str = "") -> list[Reading]:
    """Everything that can be read from the tables: tested differences, other data, controls."""
    recommendation = recommend(results)
    chosen = recommendation.detector if recommendation else ""
    gains = [_gains(results, *contest) for contest in CONTESTS]
    p_values = [p_from_interval(_mean(each)) if each else math.nan for each in gains]
    tested = [
        _contest(model, contest, each, left_out, (p, corrected))
        for contest, each, p, corrected in zip(CONTESTS, gains, p_values, holm(p_values), strict=True)
    ]
    gates = [_contest(model, gate, each, left_out) for gate in GATES if (each := _gains(results, *gate))]
    controls = [_permuted_labels(results, model), _calibrated(results, chosen, model)]
    measured = [reading for reading in controls if reading is not None]
    return [*tested, *_transfer_readings(results, chosen, model), *measured, *gates]


def signed(gain: Estimate | None) -> str:
    """+0.012 [−0.003, 0.027]."""
    positive = gain is not None and round(gain.value, DIGITS) > 0
    return f"{'+' * positive}{estimate(gain, DIGITS)}"


def passes_words(passes: int | None) -> str:
    """1 extra pass, 3 extra passes, no extra pass."""
    if passes is None:
        return "an unknown number of extra passes"
    return "no extra pass" if passes == 0 else f"{passes} extra pass{'es' * (passes != 1)}"


def recommend(results: DetectionResults) -> Recommendation | None:
    """The detector to use; None where no detector was tested on what it learned from."""
    means = {name: results.mean(name, results.in_domain) for name in results.names if not entry_of(name).variant_of}
    aurocs = {name: mean for name, mean in means.items() if mean is not None}
    reference = next((name for name in (BOTH, PROBE, CONFIDENCE) if name in aurocs), None)
    if reference is None:
        best = max(aurocs, key=lambda name: aurocs[name].value, default=None)
        return Recommendation(best, aurocs[best], f"{BOTH} was not measured; this is the highest") if best else None
    differences = {name: results.mean(name, results.in_domain, reference) for name in aurocs if name != reference}
    gains = {name: gain for name, gain in differences.items() if gain is not None}
    extra = {name: results.passes.get(name, 0) - results.passes.get(reference, 0) for name in gains}
    corrected = holm([p_from_interval(gain) for gain in gains.values()])
    better = [
        name
        for (name, gain), p in zip(gains.items(), corrected, strict=True)
        if above_zero(gain, p, NEGLIGIBLE_AUROC) == "yes"
    ]
    net = {name: gains[name].value - NEGLIGIBLE_AUROC * extra[name] for name in better}
    cheaper = [name for name, gain in gains.items() if extra[name] < 0 and above(gain, -NEGLIGIBLE_AUROC) == "yes"]
    best = reference
    if net and max(net.values()) > 0:
        best = max(net, key=lambda name: net[name])
        price = f" by more than its {passes_words(extra[best])}" if extra[best] > 0 else ""
        reason = f"it beats {reference}{price} ({signed(gains[best])})"
    elif better:
        reason = f"the gain of {', '.join(better)} is smaller than the price of the extra passes"
    elif cheaper:
        best = max(cheaper, key=lambda name: (-results.passes.get(name, 0), gains[name].value))
        reason = f"it is less than {number(NEGLIGIBLE_AUROC, 2)} worse than {reference} and cheaper"
    else:
        reason = f"none of {len(gains)} others is better" if gains else "nothing else was measured"
    return Recommendation(best, aurocs[best], reason)


def _reading(
    model: str,
    claim: str,
    topic: str,
    statement: str,
    numbers: str,
    value: Estimate | None,
    verdict: Verdict,
    standing: Standing = "description",
    p_values: tuple[float | None, float | None] = (None, None),
) -> Reading:
    sentence = f"{statement[:1].upper()}{statement[1:]}: {verdict}"
    about = (f"detection:{claim}", claim, topic, statement, sentence, numbers, value, verdict, "AUROC", topic, model)
    return Reading(*about, standing=standing, p_value=p_values[0], p_corrected=p_values[1])


def _gains(results: DetectionResults, detector: str, against: str) -> list[Estimate]:
    """The gain on every dataset that has one."""
    gains = [results.difference(detector, against, cell) for cell in results.in_domain]
    return [gain for gain in gains if gain is not None]


def _mean(gains: Sequence[Estimate]) -> Estimate:
    mean = mean_estimate(gains, independent=True)
    assert mean is not None
    return mean


def _claim_name(detector: str) -> str:
    return detector.replace("-", "_").replace("+", "_and_")


def _contest(
    model: str,
    contest: tuple[str, str],
    gains: Sequence[Estimate],
    left_out: Mapping[str, str],
    p_values: tuple[float, float] | None = None,
) -> Reading:
    detector, against = contest
    claim = f"{_claim_name(detector)}_beats_{_claim_name(against.removeprefix(f'{detector}-'))}"
    topic, statement = f"{detector} over {against}", f"the AUROC of {detector} is higher than that of {against}"
    if not gains:
        reason = left_out.get(detector) or left_out.get(against) or "it was not fitted"
        return _reading(model, claim, topic, statement, f"not measured here: {reason}", None, "not measured", "tested")
    gain = _mean(gains)
    parts, verdict = [signed(gain)], gained(gain)
    standing: Standing = "control" if p_values is None else "tested"
    if p_values is not None:
        verdict = above_zero(gain, p_values[1], NEGLIGIBLE_AUROC)
        parts.append(f"corrected p {p_value_cell(p_values[1])}")
    if len(gains) > 1:
        alone = [above(gain, 0.0) for gain in gains]
        parts.append(f"better on {alone.count('yes')} and worse on {alone.count('no')} of {len(gains)} datasets")
    if contest in _PAPER:
        parts.append(f"the paper reports +{number(_PAPER[contest], DIGITS)}")
    words = "; ".join(parts)
    return _reading(model, claim, topic, statement, words, gain, verdict, standing, p_values or (None, None))


def _transfer_readings(results: DetectionResults, chosen: str, model: str) -> list[Reading]:
    """How the chosen detector and `auto` do on other data; nothing where no other data was tested."""
    general = AUTO if AUTO in results.names else chosen
    means = {name: mean.value for name in (PROBE, CONFIDENCE) if (mean := results.mean(name, results.elsewhere))}
    simple = max(means, key=lambda name: means[name], default=None)
    checks: list[tuple[str, str | None, Sequence[Cell], str, str]] = [
        (name, simple, results.elsewhere, "transfers", "on another dataset")
        for name in dict.fromkeys((chosen, general))
    ]
    checks += [
        (general, CONFIDENCE, results.held_out, "held_out", "on a dataset left out of training"),
        (general, CONFIDENCE, results.prompted, "other_prompt", "under another prompt"),
    ]
    readings = []
    for detector, against, cells, claim, where in checks:
        own = results.mean(detector, cells)
        gap = results.mean(detector, cells, against) if against and against != detector else None
        if own is None or against is None or gap is None:
            continue
        numbers = (
            f"AUROC {estimate(own, DIGITS)}, {against} {estimate(results.mean(against, cells), DIGITS)}, difference "
            f"{signed(gap)}; mean of {len(cells)}"
        )
        statement = f"{where}, {detector} is at most {number(NEGLIGIBLE_AUROC, 2)} below {against}"
        verdict, name = above(gap, -NEGLIGIBLE_AUROC), f"{_claim_name(detector)}_{claim}"
        readings.append(_reading(model, name, f"{detector} {where}", statement, numbers, gap, verdict))
    return readings


def _calibrated(results: DetectionResults, detector: str, model: str) -> Reading | None:
    errors = {
        (shown_dataset(cell[1]), prevalence): ece
        for cell in results.in_domain
        for prevalence in (BALANCED, NATURAL)
        if (ece := results.value(detector, cell, "ece", prevalence)) is not None
    }
    if not errors:
        return None
    worst = max(errors, key=lambda where: errors[where].value)
    small = sum(ece.value <= CALIBRATED for ece in errors.values())
    numbers = (
        f"expected calibration error at most {number(CALIBRATED, 2)} in {small} of {len(errors)} (datasets × "
        f"prevalences); largest {estimate(errors[worst], DIGITS)}, {', '.join(worst)}"
    )
    statement = f"the probabilities of {detector} are calibrated"
    verdict = all_of([below(ece, CALIBRATED) for ece in errors.values()])
    return _reading(model, "calibrated", "calibration", statement, numbers, errors[worst], verdict, "control")


def _permuted_labels(results: DetectionResults, model: str) -> Reading | None:
    areas = {(name, train): area for (kind, name, train), area in results.control_values.items() if kind == PERMUTED}
    if not areas:
        return None
    verdicts = [_permuted_label_verdict(area) for area in areas.values()]
    detector, dataset = farthest = max(areas, key=lambda where: abs(areas[where].value - _GUESSING))
    area = areas[farthest]
    numbers = (
        f"{verdicts.count('yes')} of {len(areas)} within {number(TOSSED, 2)} of 0.50; farthest {detector} on "
        f"{shown_dataset(dataset)}, {estimate(area, DIGITS)}; mean of {count(area.n)} permutations, intervals "
        f"corrected for all {len(areas)} (Bonferroni)"
    )
    statement, verdict = "with permuted labels no detector tells true from false answers", all_of(verdicts)
    return _reading(model, "permuted_labels", "permuted labels", statement, numbers, area, verdict, "control")


def _permuted_label_verdict(area: Estimate) -> Verdict:
    """Within 0.01 of a half by its value; beyond it, refuted only where the interval leaves out the half."""
    if abs(area.value - _GUESSING) <= TOSSED:
        return "yes"
    return "no" if area.ci_low > _GUESSING or area.ci_high < _GUESSING else "inconclusive"
