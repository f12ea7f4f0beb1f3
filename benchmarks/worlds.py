"""Does the estimator of the four parts say no where it must? Worlds whose parts are known: bias, coverage, alarms.

    python benchmarks/worlds.py [--worlds half,match] [--items 360,1000] [--replicas 3] [--minutes 4.5] [--json]

A world (tests/support/known_worlds.py) passes where every part is off by at most 0.03 on average, intervals hold the
truth at least 93 times in 100, and what is not there (a match, or a difference to an equal control) is claimed at most
5 times in 100. Replicas whose intervals are wider than the scale are left out, as in a report. Few replicas can miss a
mark by chance. Batches run in processes of their own, the first of every world before the second of any; after
`--minutes` no further batch is started.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
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
from anchorscope.progress import Silent
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import estimate_share
from anchorscope.stats.streams import stream
from known_worlds import WORLDS, States, Truth, draw_states, find_truth
from reporting import Parser, Report, at_least, machine, names, run_script, say

MOST_BIAS = 0.03
LEAST_COVERAGE = 0.93
MOST_ALARMS = 0.05
SIZES = (360, 1000)
FEWEST = 120
"""Items of a replica: every half, fold and inner fold needs true and false ones."""
AT_ONCE = 16
"""Replicas that are drawn and solved together."""
_WIDEST = 0.5  # half of the widest interval that a report speaks of
_ABSENT = 0.005  # a share below it is one that is not there: the truth comes from a finite draw

Values = Mapping[str, np.ndarray]
"""Per replica, by quantity: one number, or one for each part."""


class Batch(NamedTuple):
    """Some replicas of a world: the same numbers in any order of the batches."""

    world: str
    items: int
    start: int
    replicas: int


def measure_batch(batch: Batch, truth: Truth, device: str, seed: int) -> Values:
    """Draws and solves; runs in a worker process."""
    torch.set_num_threads(1)
    name, items, start, replicas = batch
    rng = stream(seed, "world", name, str(items), str(start))
    states = draw_states(WORLDS[name], items, replicas, rng)
    return measure_replicas(states, truth, device, seed)


def measure_replicas(
    states: States, truth: Truth, device: str = "cpu", seed: int = 0
) -> Values:
    """Errors, coverage and claims, as the code of a run gives them."""
    items = _items(states, seed)

    def principal(view: torch.Tensor) -> torch.Tensor:
        directions = default_directions(view.shape[1], view.shape[2])
        return principal_states(view, directions, device)

    clean = principal(states.clean)
    solver = EvidenceSolver(clean, items, device, Silent())
    needs = solver.needs(principal(states.cut), principal(states.before))
    control = {CUT: solver.terms(principal(states.control), "control")}
    shares = evidence_parts(needs)
    difference = shares[NEEDS_QUESTION] - evidence_parts(control)[NEEDS_QUESTION]
    wanted = np.array([truth.parts[part] for part in PARTS])
    found = np.stack([shares[part].value for part in PARTS], axis=-1)
    widths = [shares[part].half_width(*items.levels) for part in PARTS]
    half_widths = np.stack(widths, axis=-1)
    is_spoken = (half_widths <= _WIDEST).all(axis=-1, keepdims=True)
    error = np.where(is_spoken, found - wanted, np.nan)
    covered = np.where(is_spoken, np.abs(error) <= half_widths, np.nan)
    return {
        "error": error,
        "covered": covered,
        "claims_together": _is_above_zero(shares[TOGETHER], items),
        "claims_difference": _is_above_zero(difference, items),
        "difference": difference.value,
        "auc": np.array([auc(scores, states.labels) for scores in solver.scores()]),
        "ratio_of_sums": needs[CUT].lost.sum(-1) / needs[CUT].had.sum(-1),
    }


def _items(states: States, seed: int) -> EvidenceItems:
    n_items = len(states.labels)
    return EvidenceItems(
        states.labels,
        states.groups,
        relations=[None] * n_items,
        item_ids=[str(index) for index in range(n_items)],
        seed=seed,
    )


def _is_above_zero(share: Share, items: EvidenceItems) -> np.ndarray:
    return np.asarray(share.value > share.half_width(*items.levels))


def marked(name: str, items: int, truth: Truth, values: Values) -> dict[str, Any]:
    """A row of the table: means over replicas, and whether the world is passed."""
    error = values["error"]
    n_spoken = int(np.isfinite(error[:, 0]).sum())
    bias = [_mean(column) for column in error.T]
    coverage = values["covered"][np.isfinite(values["covered"])]
    alarms = _false_alarms(name, truth, values)
    passes = (
        max(np.abs(bias)) <= MOST_BIAS
        and _mean(coverage) >= LEAST_COVERAGE
        and (not len(alarms) or _mean(alarms) <= MOST_ALARMS)
    )
    return {
        "world": name,
        "about": WORLDS[name].about,
        "items": items,
        "replicas": len(error),
        "spoken": n_spoken,
        "auc": _mean(values["auc"]),
        "best_auc": truth.probe_auc,
        "truth": [truth.parts[part] for part in PARTS],
        "bias": bias,
        "covered": [_mean(column) for column in values["covered"].T],
        "coverage": _mean(coverage),
        "coverage_interval": _interval(coverage),
        "false_alarms": _mean(alarms) if len(alarms) else None,
        "false_alarms_interval": _interval(alarms),
        "claims_together": _mean(values["claims_together"]),
        "difference": _mean(values["difference"]),
        "ratio_of_sums": _mean(values["ratio_of_sums"]),
        "passes": bool(passes),
    }


def _false_alarms(name: str, truth: Truth, values: Values) -> np.ndarray:
    """Claims of what is not there, if there is such a thing in this world."""
    claims = [np.zeros(0)]
    if truth.parts[TOGETHER] < _ABSENT:
        claims.append(values["claims_together"])
    if WORLDS[name].noise_only:
        claims.append(values["claims_difference"])
    return np.concatenate(claims)


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _interval(claims: np.ndarray) -> list[float] | None:
    """Wilson's interval of a rate."""
    if not len(claims):
        return None
    rate = estimate_share(int(claims.sum()), len(claims), "replicas")
    return [rate.ci_low, rate.ci_high]


def solve_worlds(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All batches in worker processes; the rows of the table."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        truths = _find_truths(pool, options)
        solved = _solve(pool, options, truths, device)
    rows = []
    for items in sorted(options.items):
        for name in options.worlds:
            parts = [
                solved[batch] for batch in sorted(solved) if batch[:2] == (name, items)
            ]
            if parts:
                rows.append(marked(name, items, truths[name], joined(parts)))
    return rows


def _find_truths(
    pool: ProcessPoolExecutor, options: argparse.Namespace
) -> dict[str, Truth]:
    asked = {
        name: pool.submit(
            find_truth,
            WORLDS[name],
            stream(options.seed, "world truth", name),
            options.endless,
        )
        for name in options.worlds
    }
    return {name: truth.result() for name, truth in asked.items()}


def _solve(
    pool: ProcessPoolExecutor,
    options: argparse.Namespace,
    truths: Mapping[str, Truth],
    device: str,
) -> dict[Batch, Values]:
    until = time.monotonic() + 60 * options.minutes
    waiting = _batches(options)
    running: dict[Future[Values], Batch] = {}
    solved: dict[Batch, Values] = {}
    while True:
        while len(running) < options.jobs and time.monotonic() < until:
            batch = next(waiting, None)
            if batch is None:
                break
            truth = truths[batch.world]
            future = pool.submit(measure_batch, batch, truth, device, options.seed)
            running[future] = batch
        if not running:
            return solved
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            batch = running.pop(done)
            solved[batch] = done.result()
            say(f"{batch.world}, {batch.items} items: {batch.replicas} replicas")


def _batches(options: argparse.Namespace) -> Iterator[Batch]:
    for start in range(0, options.replicas, AT_ONCE):
        replicas = min(AT_ONCE, options.replicas - start)
        for items in sorted(options.items, reverse=True):
            for name in options.worlds:
                yield Batch(name, items, start, replicas)


def joined(batches: Sequence[Values]) -> Values:
    """Batches of one world, one after the other."""
    return {
        key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]
    }


def measure(options: argparse.Namespace) -> Report:
    """The table of all worlds."""
    rows = solve_worlds(options)
    notes = []
    for items in sorted(options.items):
        mine = [row for row in rows if row["items"] == items]
        failed = [row["world"] for row in mine if not row["passes"]]
        beside = f"; not in {', '.join(failed)}" if failed else ""
        passed = f"{len(mine) - len(failed)} of {len(mine)} worlds"
        notes.append(f"{items} items: the four parts pass in {passed}{beside}.")
    columns = {
        "world": "{}",
        "items": "{:,}",
        "replicas": "{}",
        "auc": "{:.2f}",
        "truth": "{:.2f}",
        "bias": "{:+.3f}",
        "coverage": "{:.1%}",
        "false_alarms": "{:.1%}",
        "passes": "{}",
    }
    facts = {"parts": list(PARTS), "seed": options.seed, "machine": machine()}
    return Report(facts, columns, rows, notes)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({at_least(FEWEST)(size) for size in text.split(",")}))


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    worlds = names(tuple(WORLDS))
    parser.add_argument("--worlds", type=worlds, default=tuple(WORLDS))
    parser.add_argument("--items", type=_sizes, default=SIZES, help="of a replica")
    parser.add_argument("--replicas", type=at_least(1), default=3)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=at_least(1), default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument(
        "--endless", type=at_least(1000), default=200_000, help="items behind the truth"
    )
    return run_script(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
