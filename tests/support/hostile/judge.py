"""What any command may do with any files, and whether it kept to that: one judge for all cases."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from hostile.case import Case
from hostile.child import Outcome

Seen = Mapping[str, str]
"""Entries of a folder, by relative path (`hostile.case.seen`)."""
_CACHES = ("cache", "tmp")
_LONG = 300
_CONTROL = re.compile(r".{0,40}[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f].{0,40}")
"""What moves a terminal's cursor, colours it or rings its bell."""


def faults(case: Case, before: Seen, after: Seen, outcome: Outcome) -> list[str]:
    """What went wrong, one line each; nothing, where the command kept to the rules."""
    return [
        *_ending(case, outcome),
        *_reach(case, outcome),
        *_lost(case, before, after),
        *_added(case, before, after, outcome.code),
        *(_other_tables(case) if outcome.code == 0 and case.tables is not None else ()),
    ]


def _ending(case: Case, outcome: Outcome) -> list[str]:
    """Exit code, messages, time, memory, processes."""
    allowed = {0, 2} | ({128 + case.interrupt[1]} if case.interrupt else set())
    lines = [line for line in outcome.told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    last = lines[-1][:_LONG] if lines else "nothing on standard error"
    found = []
    if outcome.code not in allowed:
        found.append(
            f"exit code {outcome.code}: {last}" if outcome.code != -14 else f"hangs ({case.seconds} s): {last}"
        )
    elif "Traceback (most recent call last)" in outcome.told + outcome.shown:
        found.append(f"a traceback: {last}")
    elif outcome.code == 2 and (len(errors) != 1 or lines[-1] != errors[0]):
        found.append(f"exit code 2 with {len(errors)} lines that begin with 'error: ', the last line is: {last}")
    if outcome.code == 0 and errors:
        found.append(f"exit code 0 in spite of: {errors[0][:_LONG]}")
    if outcome.code == 0 and "--json" in case.words and outcome.shown.startswith("{") and not _is_json(outcome.shown):
        found.append(f"standard output is no JSON: {outcome.shown[:_LONG]}")
    if control := _CONTROL.search(outcome.told + outcome.shown):
        found.append(f"prints a control character: {control[0]!r}")
    if outcome.memory_mb > case.memory_mb:
        found.append(f"took {outcome.memory_mb:.0f} MB, allowed are {case.memory_mb}")
    found += [f"left a process running: {name}" for name in outcome.left]
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _reach(case: Case, outcome: Outcome) -> list[str]:
    """The world outside."""
    kept = {"outside": case.reaches_out, "network": case.may_ask_hub}
    return [f"tried: {line[:_LONG]}" for line in outcome.noted if not kept[line.partition(" ")[0]]]


def _lost(case: Case, before: Seen, after: Seen) -> list[str]:
    """What is not as it was, and was not anchorscope's own; a file in a result's way may have been moved aside."""
    found = []
    for name, was in before.items():
        if name in case.ours or after.get(name) == was or name.partition("/")[0] in _CACHES:
            continue
        aside = [one for one in after if re.fullmatch(rf"{re.escape(name)}\.changed-\d+", one) and after[one] == was]
        under_moved = any(  # a folder that was moved aside took it along
            after.get(f"{place}{name[len(place.split('.changed-')[0]) :]}") == was for place in _moved(name, after)
        )
        if not aside and not under_moved and not (was.startswith("folder") and _only_ours(name, before, case)):
            found.append(f"the user's {name!r} ({was[:40]}) is {after.get(name, 'gone')[:40]}")
    return found


def _moved(name: str, after: Seen) -> list[str]:
    parents = [str(one) for one in Path(name).parents][:-1]
    return [one for one in after for parent in parents if re.fullmatch(rf"{re.escape(parent)}\.changed-\d+", one)]


def _only_ours(folder: str, before: Seen, case: Case) -> bool:
    """Whether anchorscope made a folder, and all that was in it is its own; a damaged step's folder may be empty."""
    inside = [name for name in before if name.startswith(f"{folder}/") and not before[name].startswith("folder")]
    return any(name.startswith(f"{folder}/") for name in case.ours) and all(name in case.ours for name in inside)


def _added(case: Case, before: Seen, after: Seen, code: int) -> list[str]:
    """What is there now, was not there before, and had no business to come; a few are named."""
    new = [name for name in after if name not in before and name not in _CACHES]
    studies = [str(Path(name).parent) for name in new if Path(name).name == "study.json"]  # in any folder
    named = [out for out in (*case.outs, *studies) if code != 2 or _got_somewhere(case.folder / out)]
    allowed = [*named, *(place for out in named for place in _led_to(case.folder, out))]
    strange = [
        name
        for name in new
        if name.startswith("tmp/") or (not name.startswith("cache/") and not any(_leads(name, out) for out in allowed))
    ]
    return [f"left {len(strange)} new entries: {', '.join(map(repr, strange[:3]))}"] if strange else []


def _leads(name: str, out: str) -> bool:
    """Whether an entry is the folder, in it, or above it."""
    return out == "." or name == out or name.startswith(f"{out}/") or out.startswith(f"{name}/")


def _led_to(folder: Path, out: str) -> list[str]:
    """Where the user's own links lead what is written to a folder, or to its steps."""
    home, places = os.path.realpath(folder), [os.path.realpath(folder / out / part) for part in (".", "work")]
    return [os.path.relpath(place, home) for place in places if place.startswith(f"{home}/")]


def _got_somewhere(out: Path) -> bool:
    """Whether a run there has anything that is worth going on with, or a study there remembers why its runs failed."""
    try:
        if (out / "study.json").is_file():
            return bool(json.loads((out / "study.json").read_bytes())["failed"])
        index = json.loads((out / "index.json").read_bytes()) if (out / "index.json").is_file() else {}
        return any(name.endswith(("/answers", "/planted")) for name in index["steps"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _other_tables(case: Case) -> list[str]:
    place, tables = case.folder / case.outs[0], case.tables or {}
    changed = [name for name in tables if not (place / name).is_file() or (place / name).read_bytes() != tables[name]]
    return [f"ended well with other numbers in {', '.join(changed)}"] if changed else []
