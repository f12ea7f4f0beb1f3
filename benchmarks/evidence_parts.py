"""The four parts in all worlds whose parts are known, with many replicas: bias, coverage and false alarms.

    python benchmarks/evidence_parts.py --out worlds [--replicas 200] [--sizes 300 1000 3000] [--minutes 4.5]

Batches of replicas run in processes of their own, on the GPU where there is one. All worlds and sizes advance together:
after `--minutes` no further batch is started, and the table says how many replicas there are. Writes worlds.csv, as
`anchorscope validate` does, and worlds.md.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import torch

from anchorscope.evidence_parts.parts import PARTS
from anchorscope.stats.streams import stream
from anchorscope.validation.worlds import (
    AT_ONCE,
    WORLDS,
    Marks,
    Truth,
    Values,
    WorldResults,
    find_truth,
    join_batches,
    mark_world,
    measure_batch,
    worlds_table,
)

Cell = tuple[str, int]
"""A world and a number of items."""


def measure(name: str, truth: Truth, size: int, start: int, replicas: int, device: str, seed: int) -> Values:
    """One batch, in a worker process."""
    torch.set_num_threads(1)
    return measure_batch(WORLDS[name], truth, size, start, replicas, device, seed)


def solve_worlds(asked: argparse.Namespace) -> WorldResults:
    """Runs all batches, the first of every world and size before the second of any."""
    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    batches: dict[Cell, dict[int, Values]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, mp_context=context) as pool:
        streams = [stream(asked.seed, "world truth", name) for name in asked.worlds]
        truths = dict(
            zip(asked.worlds, pool.map(find_truth, [WORLDS[name] for name in asked.worlds], streams), strict=True)
        )
        waiting: Iterator[tuple[str, int, int]] = (
            (name, size, start)
            for start in range(0, asked.replicas, AT_ONCE)
            for size in sorted(asked.sizes, reverse=True)
            for name in asked.worlds
        )
        running: dict[Future[Values], tuple[str, int, int]] = {}
        while True:
            while len(running) < asked.jobs and time.monotonic() - began < 60 * asked.minutes:
                batch = next(waiting, None)
                if batch is None:
                    break
                name, size, start = batch
                number = min(AT_ONCE, asked.replicas - start)
                running[pool.submit(measure, name, truths[name], size, start, number, device, asked.seed)] = batch
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                name, size, start = running.pop(done)
                batches.setdefault((name, size), {})[start] = done.result()
    marks = []
    for size in sorted(asked.sizes):
        for name in asked.worlds:
            if by_start := batches.get((name, size)):
                values = join_batches([by_start[start] for start in sorted(by_start)])
                marks.append(mark_world(name, size, truths[name], values))
    sys.stdout.write(f"{len(marks)} worlds and sizes on {device} in {time.monotonic() - began:.0f} s\n")
    return WorldResults(truths, tuple(marks))


def as_markdown(results: WorldResults) -> str:
    """A row for every world and size; parts in the order together, question, answer, either."""
    lines = ["| world | items | replicas | AUC | truth | bias | coverage, % | all, % | false alarms, % | passes |"]
    lines.append("|---" * 10 + "|")
    for mark in results.marks:
        truth, values = results.truths[mark.world], mark.values
        alarms = values.get(("false alarms", "all parts"))
        cells = (
            mark.world,
            mark.n,
            values["bias", PARTS[0]].n,
            f"{values['auc', 'probe'].value:.2f}",
            ", ".join(f"{truth.parts[part]:.2f}" for part in PARTS),
            ", ".join(f"{values['bias', part].value:+.3f}" for part in PARTS),
            ", ".join(f"{100 * values['covered', part].value:.0f}" for part in PARTS),
            f"{100 * values['covered', 'all parts'].value:.1f}",
            "–" if alarms is None else f"{100 * alarms.value:.1f}",
            "yes" if mark.passes else "no",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", *(_pool_sizes(results.marks))]) + "\n"


def _pool_sizes(marks: tuple[Marks, ...]) -> Iterator[str]:
    """The coverage of every part over all worlds of a size."""
    for size in sorted({mark.n for mark in marks}):
        mine = [mark.values for mark in marks if mark.n == size]
        for part in PARTS:
            rates = [values["covered", part] for values in mine if values["covered", part].n]
            number = sum(rate.n for rate in rates)
            share = sum(rate.value * rate.n for rate in rates) / max(number, 1)
            yield f"{size} items, {part}: coverage {100 * share:.1f} % of {number}"


def main() -> None:
    """Writes both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    results = solve_worlds(asked)
    worlds_table(results).write_csv(asked.out / "worlds.csv")
    (asked.out / "worlds.md").write_text(as_markdown(results), encoding="utf-8")
    sys.stdout.write((asked.out / "worlds.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
