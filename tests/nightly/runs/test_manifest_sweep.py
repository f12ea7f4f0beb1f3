"""A manifest in which any entry is something else is refused in one line, or nothing reads that entry."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.files import canonical_hash
from anchorscope.finished import open_finished
from whole_runs import SmallRun

Entry = tuple[str | int, ...]
NOT_READ = ("seal", "sha256", "index", "facts")
"""The first two are checked by others, the last two have an entry per step and fact."""


def entries(record: Any, path: Entry = ()) -> Iterator[Entry]:
    """The paths of all entries of a record; of a list those of the first."""
    members = (
        record.items()
        if isinstance(record, dict)
        else enumerate(record[:1])
        if isinstance(record, list)
        else ()
    )
    for name, member in members:
        yield (*path, name)
        yield from entries(member, (*path, name))


def failure(folder: Path) -> str | None:
    """What opening a run fails with, in words; None where it does not."""
    try:
        run = open_finished(folder, checked=False)
        _ = run.findings, run.card
    except UserError as error:
        return str(error)
    return None


def test_every_entry_in_turn(small_run: SmallRun, tmp_path: Path) -> None:
    run = small_run.copy("finished", tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    paths = [
        path for path in entries(manifest) if path[0] not in NOT_READ and len(path) < 4
    ]
    assert len(paths) > 50
    refused = 0
    for path in paths:
        for value in (None, "x", 7, [], {}, [[1]]):
            changed = copy.deepcopy(manifest)
            holder: Any = changed
            for name in path[:-1]:
                holder = holder[name]
            holder[path[-1]] = value
            del changed["seal"]
            (run / "manifest.json").write_text(
                json.dumps({**changed, "seal": canonical_hash(changed)})
            )
            line = failure(run)
            assert line is None or "\n" not in line
            refused += line is not None
    assert refused > 50
