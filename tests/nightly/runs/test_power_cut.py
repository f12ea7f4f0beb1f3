"""A power cut takes what was not brought to the disk: whatever an index or a manifest lists was there before it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anchorscope.recipe import make_recipe
from whole_runs import SmallRun, quick, tables_of


class Disk:
    """What would be left after a power cut: contents and names that were brought to the disk, and none else."""

    def __init__(self, below: Path) -> None:
        self.below = below
        self.contents: set[int] = set()
        """Inodes whose content is on the disk."""
        self.names: set[Path] = set()
        """Names that are on the disk."""
        self.checked: list[str] = []
        """The indexes and manifests that came, in order."""

    def fsync(self, handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if place.is_dir():
            gone = {
                name
                for name in self.names
                if name.parent == place and not name.exists()
            }
            self.names = (self.names - gone) | set(place.iterdir())
        else:
            self.contents.add(os.fstat(handle).st_ino)

    def replaced(self, old: Path, new: Path) -> None:
        """Called before a file takes its name."""
        self.names.discard(new)
        if new.name == "index.json" and new.parent == self.below:
            index = json.loads(old.read_text())
            steps = [
                step for step in index["steps"].values() if not step["large"]
            ]  # large ones are checked when read
            listed = [name for step in steps for name in step["files"]]
            self._require("index.json", [*listed, *index["results"]])
        elif new.name == "manifest.json" and new.parent == self.below:
            self._require(
                "manifest.json", [*json.loads(old.read_text())["sha256"], "index.json"]
            )
            index = json.loads((self.below / "index.json").read_text())
            assert set(json.loads(old.read_text())["sha256"]) == set(index["results"])

    def _require(self, by: str, names: list[str]) -> None:
        for name in names:
            place = self.below / name
            assert place.stat().st_ino in self.contents, (
                f"the content of {name} is not on the disk before {by}"
            )
            for part in (place, *place.parents):
                if part == self.below:
                    break
                assert part in self.names, (
                    f"the name of {part} is not on the disk before {by}"
                )
        self.checked.append(by)


@contextmanager
def watched_disk(below: Path, disk: Disk | None = None) -> Iterator[Disk]:
    """Watches every fsync and rename."""
    seen, fsync, replace = disk or Disk(below), os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        seen.fsync(handle)

    def watched_replace(old: Any, new: Any) -> None:
        seen.replaced(Path(old), Path(new))
        replace(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", watched_fsync)
        patch.setattr(os, "replace", watched_replace)
        yield seen


def test_whatever_is_listed_is_on_the_disk_before_the_list(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    disk = Disk(out)
    disk.names = set(out.rglob("*"))
    disk.contents = {place.stat().st_ino for place in disk.names if place.is_file()}
    (out / "curves.csv").write_text("mine")
    with watched_disk(out, disk):
        # started over, with a file of the user's in the way
        quick(small_run.recipe, out, fresh=True)
        assert tables_of(out) == small_run.tables
        assert disk.checked.count("manifest.json") == 1
        assert disk.checked.count("index.json") > 2 * len(
            json.loads((out / "index.json").read_text())["steps"]
        )
        assert set(disk.checked[disk.checked.index("manifest.json") + 1 :]) == {
            "index.json"
        }
        quick(
            make_recipe({**small_run.recipe.model_dump(), "bootstrap": 101}), out
        )  # extended
    assert disk.checked.count("manifest.json") == 2


def test_the_watch_sees_a_file_that_was_not_brought_to_the_disk(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anchorscope.artefacts import step

    monkeypatch.setattr(step, "sync_tree", lambda path: None)
    with (
        watched_disk(tmp_path / "run"),
        pytest.raises(AssertionError, match="is not on the disk before index"),
    ):
        quick(small_run.recipe, tmp_path / "run")
