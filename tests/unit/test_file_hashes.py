"""Hashes of files: right after every change, and computed once for as long as a file is the same."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from anchorscope import files as hashing
from anchorscope.files import known_sha256


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were read; clocks that tick too slowly are no matter here."""
    seen: list[str] = []
    original = hashing.sha256
    monkeypatch.setattr(hashing, "_MEMORY", {})
    monkeypatch.setattr(hashing, "_JUST_WRITTEN", -(10**18))
    monkeypatch.setattr(
        hashing, "sha256", lambda path: (seen.append(path.name), original(path))[1]
    )
    return seen


def made(folder: Path, **contents: bytes) -> list[Path]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_MEMORY", {})


def test_every_file_is_read_once_by_all_processes(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, store = (
        made(tmp_path, a=b"1", b=b"2" * 100_000),
        tmp_path / "cache" / "sha256.json",
    )
    right = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert (
        known_sha256(files, store)
        == known_sha256(files, store)
        == known_sha256(files)
        == right
    )
    assert sorted(read) == ["a", "b"]
    forget(monkeypatch)
    assert known_sha256(files, store) == right
    assert sorted(read) == ["a", "b"]
    assert [entry.name for entry in store.parent.iterdir()] == [store.name]


def test_a_change_under_the_old_date_and_size_is_seen(
    tmp_path: Path, read: list[str]
) -> None:
    (file,) = made(tmp_path, a=b"one")
    then = file.stat()
    known_sha256([file])
    file.write_bytes(b"two")
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert known_sha256([file]) == [hashlib.sha256(b"two").hexdigest()]
    (other,) = made(tmp_path, b=b"new")
    os.utime(other, ns=(then.st_atime_ns, then.st_mtime_ns))
    os.replace(other, file)
    assert known_sha256([file]) == [hashlib.sha256(b"new").hexdigest()]


def test_a_file_written_just_now_may_still_change(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "_JUST_WRITTEN", 10**18)
    files, store = made(tmp_path, a=b"1"), tmp_path / "sha256.json"
    known_sha256(files, store)
    known_sha256(files, store)
    assert read == ["a", "a"]
    assert not store.exists()


@pytest.mark.parametrize("harm", ["flip", "halve", "empty", "list", "deep", "folder"])
def test_a_damaged_store_is_ignored(
    harm: str, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, store = made(tmp_path, a=b"1"), tmp_path / "sha256.json"
    right = known_sha256(files, store)
    text = store.read_text()
    if harm == "flip":
        digest = right[0]
        store.write_text(
            text.replace(digest, digest[:-1] + ("0" if digest[-1] != "0" else "1"))
        )
    elif harm == "folder":
        store.unlink()
        store.mkdir()
    else:
        made_of = {
            "halve": text[: len(text) // 2],
            "empty": "",
            "list": "[1, 2]",
            "deep": "[" * 100_000,
        }
        store.write_text(made_of[harm])
    forget(monkeypatch)
    assert known_sha256(files, store) == right
    assert read == ["a", "a"]
    if harm != "folder":
        assert json.loads(store.read_text())["files"]  # and written again


def test_where_nothing_can_be_remembered_hashes_are_right_all_the_same(
    tmp_path: Path, read: list[str]
) -> None:
    files = made(tmp_path, a=b"1")
    assert known_sha256(files, tmp_path / "a" / "sha256.json") == [
        hashlib.sha256(b"1").hexdigest()
    ]
