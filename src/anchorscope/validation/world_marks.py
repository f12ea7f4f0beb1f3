"""The parts in all worlds, by the code that a run uses: bias, coverage and false alarms, over replicas.

A world is passed where every part is off by at most 0.03 on average, intervals hold the truth at least 93 times in 100,
and what is not there (a match, or a difference to an equal control) is claimed at most 5 times in 100. Replicas whose
intervals are wider than the scale are left out, as in a report. Few replicas can miss a mark by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from scipy.special import stdtrit

from anchorscope.artefacts.schema import WORLDS_SCHEMA
from anchorscope.evidence_parts.need import Share
from anchorscope.evidence_parts.parts import (
    CUT,
    NEEDS_QUESTION,
    PARTS,
    TOGETHER,
    EvidenceItems,
    EvidenceSolver,
    evidence_parts,
)
from anchorscope.evidence_parts.principal import default_directions, principal_states
from anchorscope.progress import Progress, Silent
from anchorscope.report.wording import count, listing, number
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import LEVEL, Estimate
from anchorscope.stats.streams import stream
from anchorscope.validation.worlds import N_ENDLESS, WORLDS, States, Truth, World, draw_states, find_truth

MOST_BIAS, LEAST_COVERAGE, MOST_ALARMS = 0.03, 0.93, 0.05
"""The marks."""
SIZES = {360: 6, 1000: 3}
"""Items of a replica, and how many replicas there are where none are asked for."""
_WIDEST = 0.5  # half of the widest interval that a report speaks of
AT_ONCE = 16
"""Replicas that are drawn and solved together."""
_ABSENT = 0.005  # a share below it is one that is not there: the truth comes from a finite draw


@dataclass(frozen=True)
class Marks:
    """A world at one number of items, over all replicas."""

    world: str
    n: int
    """Items of a replica."""
    values: dict[tuple[str, str], Estimate]
    """By quantity and part; n of each is the number of values that it rests on."""
    passes: bool


@dataclass(frozen=True)
class WorldResults:
    """What came out of the worlds."""

    truths: dict[str, Truth]
    marks: tuple[Marks, ...]
    """Per world and number of items."""


def run_worlds(
    replicas: int | None = None,
    n: int | Sequence[int] = tuple(SIZES),
    device: str | torch.device = "cpu",
    seed: int = 0,
    names: Sequence[str] = tuple(WORLDS),
    progress: Progress | None = None,
    endless: int = N_ENDLESS,
) -> WorldResults:
    """Every world at every number of items; `replicas` of each, by default those of `SIZES`."""
    sizes = (n,) if isinstance(n, int) else tuple(n)
    listener = progress or Silent()
    listener.start("worlds", len(names) * len(sizes))
    truths = {name: find_truth(WORLDS[name], stream(seed, "world truth", name), endless) for name in names}
    marks = []
    for size in sizes:
        usual = SIZES[min(SIZES, key=lambda usual_size: abs(usual_size - size))]
        for name in names:
            batches = [
                measure_batch(WORLDS[name], truths[name], size, start, number, device, seed)
                for start in range(0, replicas or usual, AT_ONCE)
                for number in [min(AT_ONCE, (replicas or usual) - start)]
            ]
            marks.append(mark_world(name, size, truths[name], join_batches(batches)))
            listener.advance(1)
    listener.finish()
    return WorldResults(truths, tuple(marks))


Values = dict[tuple[str, str], list[float]]
"""One number per replica, by quantity and part."""


def measure_batch(
    world: World, truth: Truth, n_items: int, start: int, replicas: int, device: str | torch.device, seed: int
) -> Values:
    """Some replicas of a world, from number `start` on: the same numbers in any order of the batches."""
    rng = stream(seed, "world", world.name, str(n_items), str(start))
    measured = measure_replicas(draw_states(world, n_items, replicas, rng), truth, device, seed)
    return {key: numbers.tolist() for key, numbers in measured.items()}


def join_batches(batches: Sequence[Values]) -> Values:
    """Batches of one world, one after the other."""
    return {key: [number for batch in batches for number in batch[key]] for key in batches[0]}


def measure_replicas(
    states: States, truth: Truth, device: str | torch.device = "cpu", seed: int = 0
) -> dict[tuple[str, str], np.ndarray]:
    """Bias, coverage and claims of every part, [replica]."""
    n_items = len(states.labels)
    names = [str(index) for index in range(n_items)]
    items = EvidenceItems(states.labels, states.groups, [None] * n_items, names, seed)
    views = (states.clean, states.before, states.cut, states.control)
    clean, before, cut, control = (
        principal_states(view, default_directions(*view.shape[1:]), device) for view in views
    )
    solver = EvidenceSolver(clean, items, device, Silent())
    needs = solver.needs(cut, before)
    shares = evidence_parts(needs)
    half_widths = {part: share.half_width(*items.levels) for part, share in shares.items()}
    spoken = np.all([half_widths[part] <= _WIDEST for part in PARTS], axis=0)
    measured: dict[tuple[str, str], np.ndarray] = {}
    for part, share in shares.items():
        error = np.where(spoken, share.value - truth.parts[part], np.nan)
        measured["bias", part] = error
        measured["covered", part] = np.where(spoken, np.abs(error) <= half_widths[part], np.nan)
    measured["claimed", TOGETHER] = _is_above_zero(shares[TOGETHER], items)
    difference = shares[NEEDS_QUESTION] - evidence_parts({CUT: solver.terms(control, "control")})[NEEDS_QUESTION]
    measured["difference", NEEDS_QUESTION] = difference.value
    measured["claimed", "difference"] = _is_above_zero(difference, items)
    measured["spoken", "all parts"] = spoken.astype(float)
    measured["auc", "probe"] = np.array([float(auc(scores, states.labels)) for scores in solver.scores()])
    measured["ratio of sums", NEEDS_QUESTION] = needs[CUT].lost.sum(-1) / needs[CUT].had.sum(-1)
    return measured


def _is_above_zero(share: Share, items: EvidenceItems) -> np.ndarray:
    return (share.value > share.half_width(*items.levels)).astype(float)


def mark_world(world: str, n: int, truth: Truth, values: Values) -> Marks:
    """Means over replicas, and whether the world is passed."""
    marks = {key: _mean(numbers, key[0] in ("covered", "claimed", "spoken")) for key, numbers in values.items()}
    pooled = [number for part in PARTS for number in values["covered", part]]
    marks["covered", "all parts"] = _mean(pooled, True)
    absent = {TOGETHER: truth.parts[TOGETHER] < _ABSENT, "difference": WORLDS[world].noise_only}
    alarms = [number for part, is_absent in absent.items() if is_absent for number in values["claimed", part]]
    if alarms:
        marks["false alarms", "all parts"] = _mean(alarms, True)
    passes = (
        max(abs(marks["bias", part].value) for part in PARTS) <= MOST_BIAS
        and marks["covered", "all parts"].value >= LEAST_COVERAGE
        and (not alarms or marks["false alarms", "all parts"].value <= MOST_ALARMS)
    )
    return Marks(world, n, marks, passes)


def _mean(values: Sequence[float], is_rate: bool) -> Estimate:
    """The mean over replicas; Wilson's interval of a rate, Student's of anything else."""
    numbers = np.array([value for value in values if np.isfinite(value)])
    n = len(numbers)
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0, "no replica with a share that may be reported")
    value = float(numbers.mean())
    if is_rate:
        from scipy.stats import binomtest  # only here: it takes half a second

        low, high = binomtest(int(numbers.sum()), n).proportion_ci(LEVEL, method="wilson")
        return Estimate(value, float(low), float(high), n, "share of replicas, Wilson's interval")
    if n == 1:
        return Estimate(value, np.nan, np.nan, 1, "one replica")
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * numbers.std(ddof=1) / np.sqrt(n))
    return Estimate(value, value - half, value + half, n, "mean over replicas, Student's interval")


def worlds_table(results: WorldResults) -> pl.DataFrame:
    """worlds.csv: one row per world, number of items, quantity and part; what is so in a world comes first."""
    rows: list[tuple[Any, ...]] = []
    for world, truth in results.truths.items():
        facts = {("truth", part): value for part, value in truth.parts.items()} | {("auc", "best"): truth.probe_auc}
        for (quantity, part), value in facts.items():
            rows.append((world, None, quantity, part, value, None, None, None, None, "from one large draw"))
    for mark in results.marks:
        for (quantity, part), e in mark.values.items():
            low, high = (end if np.isfinite(end) else None for end in (e.ci_low, e.ci_high))
            rows.append((mark.world, mark.n, quantity, part, e.value, low, high, e.n, mark.passes, e.method))
    return pl.DataFrame(rows, schema=WORLDS_SCHEMA, orient="row")


def worlds_summary(results: WorldResults) -> dict[str, dict[str, Any]]:
    """For programs: per world and number of items what came out."""
    summary: dict[str, dict[str, Any]] = {}
    for mark in results.marks:
        numbers = {f"{quantity}, {part}": e.value for (quantity, part), e in mark.values.items()}
        replicas = mark.values["bias", TOGETHER].n
        summary.setdefault(mark.world, {})[str(mark.n)] = {"passes": mark.passes, "replicas": replicas, **numbers}
    return summary


def worlds_sentences(results: WorldResults) -> list[str]:
    """The summary of the page."""
    sentences = []
    for size in sorted({mark.n for mark in results.marks}):
        marks = [mark for mark in results.marks if mark.n == size]
        failed = [mark.world for mark in marks if not mark.passes]
        worst = max(abs(mark.values["bias", part].value) for mark in marks for part in PARTS)
        beside = f"; not in: {listing(failed)}" if failed else ""
        sentences.append(
            f"With {count(size)} items the four parts pass in {len(marks) - len(failed)} of {len(marks)} worlds whose "
            f"parts are known{beside}. The largest bias of a part is {number(worst, 2)}."
        )
    return sentences
