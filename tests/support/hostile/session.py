"""Many cases, one after another or in several processes: made, run, judged; a failure comes with its replay."""

import json
import os
import pickle
import random
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.case import Case, Generator
from hostile.child import Outcome, forked, keep_orphans, outcome_of
from hostile.generators import GENERATORS
from hostile.judge import faults
from hostile.options import commands
from hostile.sentinels import plant, seen
from hostile.stage import Stage

_BY_NAME = {one.name: one for one in GENERATORS}
NAMES = sorted(_BY_NAME)
"""Of the generators."""
_SEEDS = 1_000_000
"""Cases of one `--seed`, so that two sessions have none in common."""
_TOGETHER = 20
"""Cases that one child makes before they are run: a fork of all that is imported takes as long as many a case."""


class GeneratorFailed(Exception):
    """A mistake of ours: a case could not be made."""


@dataclass(frozen=True)
class Session:
    """Where cases are made, and from what."""

    stage: Stage
    place: Path
    keep: bool = False
    """Whether the folders of failures stay."""


def run_many(session: Session, only: str | None, cases: int | None, seed: int, jobs: int) -> int:
    """Runs cases of all generators, or of one; failures are told as they come, and the last line sums up."""
    began, failed = time.monotonic(), 0
    chosen = [_BY_NAME[only]] if only else GENERATORS
    counts = {one.name: _count(one, cases, chosen) for one in chosen}
    todo = [(name, seed * _SEEDS + number) for name, count in counts.items() for number in range(count)]
    random.Random(0).shuffle(todo)
    seconds, missing = dict.fromkeys(counts, 0.0), set(commands())
    for result in _worked(session, todo, jobs):
        name = result["generator"]
        seconds[name] += result["seconds"]
        failed += bool(result["faults"])
        missing.discard(result["called"])
        for fault in result["faults"]:
            again = f"again: python tools/hostile.py --replay {name} {result['seed']}"
            sys.stdout.write(f"{name} {result['seed']}: {fault}\n    {result['command']}\n    {again}\n")
        sys.stdout.flush()
    told = ", ".join(f"{count} {name} ({seconds[name]:.0f} s)" for name, count in counts.items())
    called = f"no {', no '.join(sorted(missing))}" if missing else "every command"
    sys.stdout.write(f"{len(todo)} cases: {told}; {called}; {failed} failed; {time.monotonic() - began:.0f} s\n")
    return 1 if failed else 0


def _count(one: Generator, cases: int | None, chosen: Sequence[Generator]) -> int:
    return one.in_tests if cases is None else round(cases * one.share / sum(other.share for other in chosen))


def _worked(session: Session, todo: Sequence[tuple[str, int]], jobs: int) -> Iterator[dict[str, Any]]:
    """The results, as they come."""
    reading, writing = os.pipe()
    for job in range(jobs):
        if os.fork() == 0:
            try:
                os.close(reading)
                keep_orphans()
                own = todo[job::jobs]
                for start in range(0, len(own), _TOGETHER):
                    make(session, own[start : start + _TOGETHER])
                    for name, seed in own[start : start + _TOGETHER]:
                        line = json.dumps(_one(session, name, seed)) + "\n"
                        os.write(writing, line.encode())
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
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


def _one(session: Session, name: str, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    try:
        case, _, found = played(session, name, seed)
    except GeneratorFailed as error:
        case, found = Case(session.place / f"{name}-{seed}"), [str(error)]
    if not (session.keep and found):
        remove(case.folder)
    seconds = time.monotonic() - began
    command = " ".join(["anchorscope", *(word if len(word) < 80 else f"{word[:60]}…" for word in case.words)])
    shown = [fault[:600] for fault in found][:4]
    return {
        "generator": name,
        "seed": seed,
        "faults": shown,
        "seconds": seconds,
        "command": repr(command),
        "called": next((one for one in commands() if case.words[: one.count(" ") + 1] == one.split()), None),
    }


def make(session: Session, cases: Sequence[tuple[str, int]]) -> None:
    """Makes cases, each in a folder of its own, in a child: the server must not compute anything."""

    def each() -> None:
        for name, seed in cases:
            try:
                _make(session, name, seed)
            except Exception:
                traceback.print_exc()
                sys.stderr.flush()

    forked(each)


def _make(session: Session, name: str, seed: int) -> None:
    folder = session.place / f"{name}-{seed}"
    rng, case = random.Random(f"{name} {seed}"), Case(folder)
    for inner in ("user", "neighbour"):
        (folder / inner).mkdir(parents=True)
        plant(folder / inner, rng)
    _BY_NAME[name].make(rng, session.stage, case)
    folder.with_name(f"{folder.name}.case").write_bytes(pickle.dumps(case))


def played(session: Session, name: str, seed: int) -> tuple[Case, Outcome, list[str]]:
    """Runs the command of a case that was made, and judges what happened."""
    folder = session.place / f"{name}-{seed}"
    made = folder.with_name(f"{folder.name}.case")
    if not made.exists():
        raise GeneratorFailed(f"the generator {name} fails at seed {seed}")
    case = pickle.loads(made.read_bytes())
    made.unlink()
    before = seen(folder)
    outcome = outcome_of(case, _anchorscope, session.stage.home)
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


def replay(session: Session, name: str, seed: int) -> int:
    """One case, with all that it printed."""
    keep_orphans()
    make(session, [(name, seed)])
    case, outcome, found = played(session, name, seed)
    for line in (
        f"anchorscope {case.words!r} in {case.folder / case.place}",
        f"environment: {case.environment}",
        f"exit code {outcome.code} after {outcome.seconds:.1f} s, {outcome.memory_mb:.0f} MB",
        f"standard output, its end:\n{outcome.shown[-2000:]}",
        f"standard error, its end:\n{outcome.told[-4000:]}",
        *(f"WRONG: {fault}" for fault in found),
        "" if found else "all as it should be",
    ):
        sys.stdout.write(f"{line}\n")
    return 1 if found else 0
