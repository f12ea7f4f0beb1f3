"""Folders that are made once per version of the code: when they are made again, and when they go."""

import os
import time
from pathlib import Path

import pytest

import run_cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cache, "CACHE", tmp_path / "cache")


@pytest.fixture
def made() -> list[Path]:
    """The folders that `make` was given."""
    return []


def test_a_folder_is_made_once(made: list[Path]) -> None:
    def make(folder: Path) -> None:
        (folder / "table.csv").write_text("a\n1\n")
        made.append(folder)

    first = run_cache.cached_run("small", make)
    assert run_cache.cached_run("small", make) == first
    assert made == [first], "made where it stays: runs record absolute paths"
    assert (first / "table.csv").read_text() == "a\n1\n"
    assert run_cache.cached_run("other", make) != first
    first.with_name(f"{first.name}.complete").unlink()  # as a crash in the middle leaves it
    (first / "half").write_text("")
    run_cache.cached_run("small", make)
    assert [path.name for path in first.iterdir()] == ["table.csv"]


def test_a_maker_that_fails_leaves_nothing(made: list[Path]) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_text("")
        made.append(folder)
        if len(made) == 1:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        run_cache.cached_run("small", make)
    assert not made[0].exists()
    assert run_cache.cached_run("small", make) == made[1]


def test_other_code_makes_its_own_and_old_ones_go_when_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_cache.cached_run("small", Path.stat)
    monkeypatch.setattr(run_cache, "_code_hash", lambda: "other code")
    second = run_cache.cached_run("small", Path.stat)
    assert second != first
    assert first.exists(), "another session may be reading it"
    os.utime(first.parent, (0, time.time() - 2 * 3600))
    run_cache.cached_run("small", Path.stat)
    assert not first.exists()
    assert second.exists()
