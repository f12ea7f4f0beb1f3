"""Files are there whole or not at all, and on the disk before anything speaks of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from anchorscope.files import (
    folder_beside,
    make_folder,
    partial_name,
    partial_of,
    read_regular,
    remove_partials,
    replacing,
    replacing_folder,
    write_json,
)


def below(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in sorted(path.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_replacing_keeps_the_old_content_until_the_new_is_whole(
    tmp_path: Path, error: type[BaseException]
) -> None:
    place = tmp_path / "file"
    place.write_text("old")

    def fail() -> None:
        with replacing(place) as half_made:
            half_made.write_text("new")
            assert place.read_text() == "old"
            raise error

    with pytest.raises(error):
        fail()
    assert below(tmp_path) == {"file": b"old"}
    with replacing(place) as half_made:
        half_made.write_text("new")
    assert below(tmp_path) == {"file": b"new"}


def test_replacing_takes_whole_folders(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with replacing_folder(tmp_path / "folder") as half_made:
            half_made.mkdir()
            (half_made / content).write_text(content)
    assert below(tmp_path) == {"folder/new": b"new"}


def test_a_folder_that_came_meanwhile_or_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, replace = tmp_path / "folder", os.replace
    with pytest.raises(OSError, match="not empty"), replacing(place) as half_made:  # noqa: PT012
        half_made.mkdir()
        place.mkdir()
        (place / "mine").write_text("mine")
    assert below(tmp_path) == {"folder/mine": b"mine"}

    def stopped(old: Path, new: Path) -> None:
        replace(old, new)
        if partial_of(Path(new).name):  # the earlier folder has just gone
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt), replacing_folder(place) as half_made:
        half_made.mkdir()
    assert below(tmp_path) == {"folder/mine": b"mine"}


def test_what_a_killed_process_left_half_made_is_not_taken_up(tmp_path: Path) -> None:
    left = tmp_path / partial_name("step")
    left.mkdir()
    (left / "old").write_text("old")
    with folder_beside(tmp_path / "step") as half_made:
        assert half_made != left
        assert list(half_made.iterdir()) == []
    remove_partials(tmp_path, "other")
    assert list(tmp_path.iterdir()) == [left]
    remove_partials(tmp_path, "step")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "step.anchorscope-partial",
        ".anchorscope-partial",
        "step.0123abcd-0123abcd.anchorscope-partial",
        partial_name("step").replace("step", "other"),
        f"{partial_name('step')}.txt",
    ],
    ids=[
        "no letters",
        "no name",
        "letters of nobody",
        "another name",
        "with an ending",
    ],
)
def test_a_name_with_our_ending_is_the_users_unless_we_chose_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine")
    remove_partials(tmp_path)
    assert below(tmp_path) == {name: b"mine"}
    assert partial_of(partial_name("step\n.csv")) == "step\n.csv"
    assert partial_name("step") != partial_name("step")


def test_a_record_that_is_no_json_leaves_the_old_one(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", {"é": float("nan")})
    with pytest.raises(TypeError, match="JSON"):
        write_json(tmp_path / "one.json", {"é": object()})
    assert below(tmp_path) == {"one.json": '{\n "é": null\n}'.encode()}


def test_what_has_no_end_and_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for kind in ("device", "pipe", "folder"):
        with pytest.raises(OSError):  # noqa: PT011 - a folder cannot even be opened so
            read_regular(tmp_path / kind)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were brought to the disk, and renamed, in order."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def name_of(handle: int) -> str:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        return partial_of(name) or name

    def watched(call: Callable[[int], None]) -> Callable[[int], None]:
        return lambda handle: (seen.append(f"fsync {name_of(handle)}"), call(handle))[1]

    def renamed(old: Path, new: Path) -> None:
        seen.append(f"rename {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched(fsync))
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def test_a_file_reaches_the_disk_before_its_name_and_that_before_all_else(
    tmp_path: Path, synced: list[str]
) -> None:
    write_json(tmp_path / "one.json", [])
    assert synced == ["fsync one.json", "rename one.json", f"fsync {tmp_path.name}"]


def test_a_new_folder_reaches_the_disk_with_those_above_it(
    tmp_path: Path, synced: list[str]
) -> None:
    make_folder(tmp_path / "a" / "b")
    assert synced == [f"fsync {tmp_path.name}", "fsync a"]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2
