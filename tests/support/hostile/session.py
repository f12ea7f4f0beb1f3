"""Many cases, one after another: made, run, judged; a failure comes with its replay."""

import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from hostile.case import Case, plant, seen
from hostile.child import Outcome, keep_orphans, outcome_of
from hostile.generators import GENERATORS, commands
from hostile.judge import faults
from hostile.stage import Stage

_SEEDS = 1_000_000
"""Cases of one `--seed`, so that two sessions have none in common."""


def run_many(stage: Stage, folder: Path, cases: int | None, seed: int) -> int:
    """Runs cases of all generators; failures are written as they come, and the last line sums up."""
    keep_orphans()
    began, failed, missing, done = time.monotonic(), 0, set(commands()), Counter[str]()
    in_tests = sum(count for _, count in GENERATORS.values())
    counts = {name: round(count * (cases or in_tests) / in_tests) for name, (_, count) in GENERATORS.items()}
    todo = [(name, seed * _SEEDS + number) for name, count in counts.items() for number in range(count)]
    random.Random(0).shuffle(todo)
    for name, number in todo:
        case, _, wrong = play(stage, folder, name, number)
        _remove(case.folder)
        done[name] += 1
        failed += bool(wrong)
        missing -= {one for one in missing if case.words[: one.count(" ") + 1] == one.split()}
        for fault in wrong[:4]:
            command = " ".join(word if len(word) < 80 else f"{word[:60]}…" for word in case.words)
            again = f"again: python tools/hostile.py --replay {name} {number}"
            sys.stdout.write(f"{name} {number}: {fault[:600]}\n    {command!r}\n    {again}\n")
        sys.stdout.flush()
    made = ", ".join(f"{count} {name}" for name, count in done.items())
    called = f"no {', no '.join(sorted(missing))}" if missing else "every command"
    sys.stdout.write(f"{len(todo)} cases: {made}; {called}; {failed} failed; {time.monotonic() - began:.0f} s\n")
    return 1 if failed else 0


def play(stage: Stage, folder: Path, name: str, seed: int) -> tuple[Case, Outcome, list[str]]:
    """Makes a case, runs its command, and judges what happened."""
    rng, case = random.Random(f"{name} {seed}"), Case(folder / f"{name}-{seed}")
    for inner in ("user", "neighbour"):
        (case.folder / inner).mkdir(parents=True)
        plant(case.folder / inner, rng)
    GENERATORS[name][0](rng, stage, case)
    before = seen(case.folder)
    outcome = outcome_of(case, _anchorscope, stage.home)
    return case, outcome, faults(case, before, seen(case.folder), outcome)


def _anchorscope() -> None:
    import huggingface_hub.constants as hub

    from anchorscope.cli.main import main as command

    hub.HF_HUB_OFFLINE = False  # any request to the hub shall be seen
    command()


def _remove(folder: Path) -> None:
    """Removes a case's folder, whatever its modes are."""
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


def replay(stage: Stage, folder: Path, name: str, seed: int) -> int:
    """One case, with all that it printed."""
    keep_orphans()
    case, outcome, wrong = play(stage, folder, name, seed)
    for line in (
        f"anchorscope {case.words!r} in {case.folder / case.working_folder}",
        f"exit code {outcome.code} after {outcome.seconds:.1f} s, {outcome.memory_mb:.0f} MB",
        f"standard output, its end:\n{outcome.shown[-2000:]}",
        f"standard error, its end:\n{outcome.told[-4000:]}",
        *(f"WRONG: {fault}" for fault in wrong or ()),
    ):
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0
