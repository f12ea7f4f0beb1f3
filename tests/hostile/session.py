"""Many cases, one after another or in several processes: made, run, judged; a failure comes with its replay."""

import argparse
import gc
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hostile.case import Case, Generator
from hostile.child import Outcome, forked, keep_orphans, outcome_of
from hostile.generators import GENERATORS
from hostile.judge import faults
from hostile.sentinels import plant, seen
from hostile.stage import Stage, build, import_everything

_BY_NAME = {one.name: one for one in GENERATORS}
_SEEDS = 1_000_000
"""Cases of one `--seed`, so that two sessions have none in common."""


def main() -> int:
    """The program."""
    words = argparse.ArgumentParser(prog="tests/hostile", description="Hostile cases: made, run, judged.")
    words.add_argument("--cases", type=int, help="how many, over all generators; without it, those of the test suite")
    words.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    words.add_argument("--jobs", type=int, default=1, help="processes")
    words.add_argument("--only", choices=sorted(_BY_NAME), help="one generator")
    words.add_argument("--replay", nargs=2, metavar=("GENERATOR", "SEED"), help="one case, with all that it printed")
    words.add_argument("--keep", action="store_true", help="keep the folders of failures, and of a replayed case")
    words.add_argument("--stage", type=Path, help="where models and runs are kept for the next time")
    given = words.parse_args()
    began = time.monotonic()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        place = Path(folder)
        stage = build((given.stage or place / "stage").resolve())
        gc.collect()
        gc.freeze()
        if given.replay:
            return _replay(
                stage, Path(tempfile.mkdtemp(prefix="hostile-")), given.replay[0], int(given.replay[1]), given.keep
            )
        chosen = [_BY_NAME[given.only]] if given.only else GENERATORS
        todo = [
            (one.name, given.seed * _SEEDS + number)
            for one in chosen
            for number in range(_count(one, given.cases, chosen))
        ]
        random.Random(0).shuffle(todo)
        failed = 0
        times = dict.fromkeys((one.name for one in chosen), 0.0)
        for result in _worked(stage, place, todo, max(1, given.jobs), given.keep):
            times[result["generator"]] += result["seconds"]
            failed += bool(result["faults"])
            again = f"again: python tests/hostile --replay {result['generator']} {result['seed']}"
            for fault in result["faults"]:
                told = f"{result['generator']} {result['seed']}: {fault}\n    {result['command']}\n    {again}\n"
                sys.stdout.write(told)
                sys.stdout.flush()
        counts = {one.name: sum(name == one.name for name, _ in todo) for one in chosen}
    told = ", ".join(f"{count} {name} ({times[name]:.0f} s)" for name, count in counts.items())
    sys.stdout.write(f"{len(todo)} cases: {told}; {failed} failed; {time.monotonic() - began:.0f} s\n")
    return 1 if failed else 0


def _count(one: Generator, cases: int | None, chosen: Sequence[Generator]) -> int:
    return one.in_tests if cases is None else round(cases * one.share / sum(other.share for other in chosen))


def _worked(
    stage: Stage, place: Path, todo: Sequence[tuple[str, int]], jobs: int, keep: bool
) -> Iterator[dict[str, object]]:
    """The results, as they come."""
    reading, writing = os.pipe()
    for job in range(jobs):
        if os.fork() == 0:
            try:
                os.close(reading)
                keep_orphans()
                for name, seed in todo[job::jobs]:
                    line = json.dumps(_one(stage, place / f"{name}-{seed}", name, seed, keep)) + "\n"
                    os.write(writing, line.encode())
            finally:
                os._exit(0)
    os.close(writing)
    got = 0
    with os.fdopen(reading, encoding="utf-8") as lines:
        for line in lines:
            got += 1
            yield json.loads(line)
    if got != len(todo):
        raise RuntimeError(f"{len(todo) - got} of {len(todo)} cases were lost with the process that ran them")


def _one(stage: Stage, folder: Path, name: str, seed: int, keep: bool) -> dict[str, object]:
    began = time.monotonic()
    case, _, found = played(stage, folder, _BY_NAME[name], seed)
    if not (keep and found):
        remove(folder)
    seconds = time.monotonic() - began
    command = " ".join(["anchorscope", *(word if len(word) < 80 else f"{word[:60]}…" for word in case.words)])
    shown = [fault[:600] for fault in found][:4]
    return {"generator": name, "seed": seed, "faults": shown, "seconds": seconds, "command": repr(command)}


def played(stage: Stage, folder: Path, generator: Generator, seed: int) -> tuple[Case, Outcome, list[str]]:
    """Makes a case in a folder, runs its command and judges what happened."""
    folder.mkdir(parents=True)
    made = folder.with_name(f"{folder.name}.case")

    def make() -> None:
        rng, case = random.Random(f"{generator.name} {seed}"), Case(folder)
        for name in ("user", "neighbour"):
            (folder / name).mkdir()
            plant(folder / name, rng)
        generator.make(rng, stage, case)
        made.write_bytes(pickle.dumps(case))

    if forked(make) != 0:
        raise RuntimeError(f"the generator {generator.name} fails at seed {seed}")
    case = pickle.loads(made.read_bytes())
    made.unlink()
    before = seen(folder)
    outcome = outcome_of(case, _anchorscope, stage.home)
    return case, outcome, faults(case, before, seen(folder), outcome)


def _anchorscope() -> None:
    import huggingface_hub.constants as hub

    from anchorscope.cli.main import main as command

    hub.HF_HUB_OFFLINE = False  # whoever asks the hub shall be seen
    command()


def remove(folder: Path) -> None:
    """Removes a case's folder, whatever its modes are."""
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


def _replay(stage: Stage, place: Path, name: str, seed: int, keep: bool) -> int:
    keep_orphans()
    folder = place / f"{name}-{seed}"
    case, outcome, found = played(stage, folder, _BY_NAME[name], seed)
    for line in (
        f"anchorscope {case.words!r} in {folder / case.place}", f"environment: {case.environment}",
        f"exit code {outcome.code} after {outcome.seconds:.1f} s, {outcome.memory_mb:.0f} MB",
        f"standard output, its end:\n{outcome.shown[-2000:]}", f"standard error, its end:\n{outcome.told[-4000:]}",
        *(f"WRONG: {fault}" for fault in found), "" if found else "all as it should be",
    ):  # fmt: skip
        sys.stdout.write(f"{line}\n")
    if keep:
        sys.stdout.write(f"kept: {folder}\n")
    else:
        remove(place)
    return 1 if found else 0
