"""`anchorscope bench --scale`: the passes of a run in this process and through workers, in turns, with equal bits.

Machines are noisy, so that only ratios of one session count: executors take turns (A B C A B C), all of their models
loaded and warm, and a ratio is taken within each round. Workers' results are kept in a folder on the way, as in a run;
what is not on the disk when a pass ends is waited for before the next one, and that time is in the record by itself.
What every executor gives is hashed; a difference ends the benchmark, as it would then measure different work.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from anchorscope.artefacts.shards import ShardStore
from anchorscope.artefacts.store_writer import StoreWriter
from anchorscope.bench.meter import machine
from anchorscope.bench.options import Options
from anchorscope.bench.scale_model import fit_coordinator
from anchorscope.bench.scale_passes import KNOCKOUT, Pass, digest, run_pass, scale_passes, tokens_of
from anchorscope.bench.setting import Say, Setting, load_model
from anchorscope.errors import UserError
from anchorscope.execute.choose import LOCAL, choose
from anchorscope.execute.executor import Executor, LocalExecutor
from anchorscope.execute.process_pool import visible_gpus
from anchorscope.execute.worker_job import WorkerJob
from anchorscope.execute.workers import WorkerGroup, cores
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import few_collections, threads
from anchorscope.models.sources import model_files

TWO_OVER_ONE = 1.5
"""Two workers have to be so many times as fast as one."""
COORDINATOR_SHARE = 0.05
"""The coordinator itself may take so much of the passes' time."""
ONE_GPU_OF_LOCAL = 0.95
"""One worker on a GPU has to reach so much of the rate of this process alone."""


@dataclass(frozen=True)
class Timing:
    """One pass through one executor, once."""

    seconds: float
    coordinator_seconds: float = 0.0
    """What the coordinator itself took, not waiting for workers (`Counts.seconds`)."""
    cpu_seconds: float = 0.0
    """Processor time of this process: slicing, packing, receiving, checking, merging, and keeping to the last byte."""
    shards: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    writing_seconds: float = 0.0
    """How long the disk was still written after the pass; in a run, while the step goes on."""


@dataclass
class Entrant:
    """One executor, warm."""

    name: str
    n_workers: int
    executor: Executor
    load_seconds: float
    """Until all of its workers had loaded the model; for workers, starting Python included."""
    counts: Callable[[], Mapping[str, Any]] = dict
    settle: Callable[[], float] = lambda: 0.0
    """Waits until all that the pass keeps is on the disk; the seconds."""
    tidy: Callable[[], None] = lambda: None
    """Removes what was kept."""
    timings: dict[str, list[Timing]] = field(default_factory=dict)

    def run(self, name: str, work: Pass) -> tuple[Timing, str]:
        """One pass, timed; the hash of what it gave is taken afterwards."""
        before, cpu, began = dict(self.counts()), time.process_time(), time.perf_counter()
        found = run_pass(self.executor, work)
        seconds = time.perf_counter() - began
        writing = self.settle()
        cpu, after = time.process_time() - cpu, self.counts()
        self.tidy()
        if not after:
            return Timing(seconds, shards=len(work.batches)), digest(found)
        taken = {key: after[key] - before[key] for key in ("seconds", "done", "bytes_sent", "bytes_received")}
        timing = Timing(
            seconds, taken["seconds"], cpu, taken["done"], taken["bytes_sent"], taken["bytes_received"], writing
        )
        return timing, digest(found)


class _Folder:
    """A run folder's part in this: a new place for every pass, so that nothing is found there."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say, self._numbers = path, say, count()
        self._stores: list[StoreWriter[ShardStore]] = []

    def shards(self) -> StoreWriter[ShardStore]:
        self._stores.append(StoreWriter(ShardStore(self._path / f"pass-{next(self._numbers)}")))
        return self._stores[-1]

    def count_shards(self, planned: int, done: int) -> None:
        pass  # nobody asks how far it is

    def settle(self) -> float:
        began = time.perf_counter()
        for one in self._stores:
            with one:
                pass  # until all is written
        return time.perf_counter() - began

    def tidy(self) -> None:
        while self._stores:
            self._stores.pop().store.drop()

    def tell(self, what: str) -> None:
        self._say(what)


def run_scale(options: Options, say: Say) -> dict[str, Any]:
    """The record of one benchmark of scale, as `--json` shows it."""
    say(f"load {options.model}")
    with threads(options.threads), few_collections(), ExitStack() as stack:  # as in a run
        began = time.perf_counter()
        lm = load_model(options)
        loaded = time.perf_counter() - began
        if lm.tokenizer is None:
            raise UserError(f"{options.model} has no tokenizer here, and answers need one; choose another --model.")
        workload = Setting(options, lm, 0.0, say, (0.0, 0.0)).workload(options.items)
        passes = scale_passes(lm, workload, options.seed, options.batch_tokens)
        entrants = [
            stack.enter_context(_entrant(name, options, lm, loaded, say))
            for name in options.executors or default_executors(lm.device.type)
        ]
        hashes = _take_turns(entrants, passes, options.repeats, say)
    rows = [_row(one, name, work, lm, hashes[name]) for one in entrants for name, work in passes.items()]
    return {
        "kind": "scale",
        "rows": rows,
        "executors": [_whole(one) for one in entrants],
        "ratios": ratios(entrants),
        "targets": judge(entrants, lm.device.type),
        "costs": fit_coordinator([row for row in rows if row["executor"] != LOCAL]),
        "model": lm.name,
        "device": str(lm.device),
        "dtype": str(lm.dtype).removeprefix("torch."),
        "threads": options.threads if lm.device.type == "cpu" else None,
        "batch_tokens": passes[KNOCKOUT].batch_tokens,
        "repeats": options.repeats,
        "workload": {
            "about": workload.about,
            "items": len(workload.items),
            "shared_tokens": workload.shared,
            "own_tokens_mean": workload.tokens / len(workload.items) - workload.shared,
        },
        "machine": machine(lm.device),
    }


def default_executors(device: str) -> tuple[str, ...]:
    """This process, one worker, and two where each has a device of its own."""
    room = cores() if device == "cpu" else len(visible_gpus())
    return (LOCAL, "processes:1", "processes:2") if room > 1 else (LOCAL, "processes:1")


@contextmanager
def _entrant(name: str, options: Options, lm: LanguageModel, loaded: float, say: Say) -> Iterator[Entrant]:
    if name == LOCAL:
        yield Entrant(name, 1, LocalExecutor(lambda: lm), loaded)
        return
    spec, _, number = name.partition("=")
    choice = choose(spec, int(number) if number else None)
    dtype, device = str(lm.dtype).removeprefix("torch."), lm.device.type
    job = WorkerJob(options.model, dtype, device, threads=options.threads if device == "cpu" else 0)
    group = WorkerGroup(choice, job, model_files(options.model), say)
    with tempfile.TemporaryDirectory(prefix="anchorscope-bench-") as folder:
        say(f"{name}: workers load the model")
        began = time.perf_counter()
        try:
            n_workers = group.coordinator.pool.n_workers
            seconds = time.perf_counter() - began
            kept = _Folder(Path(folder), say)
            executor = group.for_run(kept, lambda tokens: None, lambda: None)
            counts = group.coordinator.counts
            try:
                yield Entrant(name, n_workers, executor, seconds, lambda: vars(counts), kept.settle, kept.tidy)
            finally:
                kept.settle()  # of a pass that failed, too: the folder goes
        finally:
            group.close()


def _take_turns(entrants: Sequence[Entrant], passes: Mapping[str, Pass], repeats: int, say: Say) -> dict[str, str]:
    """All executors in turn, the first round only to warm up; the hash of every pass, the same from all."""
    hashes: dict[str, str] = {}
    first = entrants[0].name
    turns = [(name, one) for name in passes for one in entrants]  # neighbours in time are compared
    for repeat in range(repeats + 1):
        for name, one in turns:
            timing, found = one.run(name, passes[name])
            if hashes.setdefault(name, found) != found:
                raise UserError(
                    f"{one.name} gives other bits than {first} in the pass {name!r}: {found[:12]} instead of "
                    f"{hashes[name][:12]}; their times are not those of the same work."
                )
            if repeat:
                one.timings.setdefault(name, []).append(timing)
                say(f"{name}: {one.name}, repeat {repeat} of {repeats}: {timing.seconds:.2f} s")
    return hashes


def _row(one: Entrant, name: str, work: Pass, lm: LanguageModel, sha256: str) -> dict[str, Any]:
    taken = one.timings[name]
    seconds, shards = median(timing.seconds for timing in taken), taken[0].shards
    return {
        "executor": one.name,
        "workers": one.n_workers,
        "pass": name,
        "items": work.n_items,
        "tokens": tokens_of(work, lm.n_layers),
        "shards": shards,
        "seconds": seconds,
        "seconds_min": min(timing.seconds for timing in taken),
        "seconds_max": max(timing.seconds for timing in taken),
        "seconds_per_shard": seconds * one.n_workers / shards,
        "coordinator_seconds": median(timing.coordinator_seconds for timing in taken),
        "cpu_seconds": median(timing.cpu_seconds for timing in taken),
        "bytes_sent": taken[0].bytes_sent,
        "bytes_received": taken[0].bytes_received,
        "writing_seconds": median(timing.writing_seconds for timing in taken),
        "sha256": sha256,
    }


def _rounds(one: Entrant) -> list[float]:
    """Seconds of all passes together, round by round."""
    return [sum(timing.seconds for timing in taken) for taken in zip(*one.timings.values(), strict=True)]


def _whole(one: Entrant) -> dict[str, Any]:
    taken = [timing for timings in one.timings.values() for timing in timings]
    seconds = sum(timing.seconds for timing in taken)
    return {
        "executor": one.name,
        "workers": one.n_workers,
        "load_seconds": one.load_seconds,
        "seconds": median(_rounds(one)),
        "coordinator_share": sum(timing.coordinator_seconds for timing in taken) / seconds,
        "cpu_share": sum(timing.cpu_seconds for timing in taken) / seconds,
    }


def ratios(entrants: Sequence[Entrant]) -> dict[str, float]:
    """How many times as fast as `processes:1` (as this process alone, for one worker) each is: medians over rounds."""
    found, by_name = {}, {one.name: one for one in entrants}
    for one in entrants:
        base = by_name.get(LOCAL if one.n_workers == 1 else "processes:1")
        if base is not None and base is not one:
            pairs = zip(_rounds(base), _rounds(one), strict=True)
            found[f"{one.name} over {base.name}"] = median(ours / theirs for ours, theirs in pairs)
    return found


def judge(entrants: Sequence[Entrant], device: str) -> list[dict[str, Any]]:
    """The bars that this session can judge."""
    judged = []
    for name, measured in ratios(entrants).items():
        bound = None
        if name == "processes:2 over processes:1":
            bound = TWO_OVER_ONE
        elif device == "cuda" and name.endswith(f"over {LOCAL}"):
            bound = ONE_GPU_OF_LOCAL
        if bound is not None:
            judged.append(_judged(f"passes, {name}: at least {bound:g}×", bound, measured, measured >= bound))
    for one in entrants:
        if one.name != LOCAL:
            share = _whole(one)["coordinator_share"]
            target = f"passes, {one.name}: the coordinator itself at most {COORDINATOR_SHARE:.0%}"
            judged.append(_judged(target, COORDINATOR_SHARE, share, share <= COORDINATOR_SHARE))
    return judged


def _judged(target: str, bound: float, measured: float, met: bool) -> dict[str, Any]:
    return {"target": target, "bound": bound, "measured": measured, "met": met}
