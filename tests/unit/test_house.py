"""Every room stays within its budget of lines and files (house.toml)."""

from pathlib import Path

import pytest

from house import measure
from repo import ROOT


def test_every_room_stays_within_its_budget() -> None:
    over = [room for room in measure() if room.is_over]
    assert not over, "make the room smaller, or raise its budget in house.toml with a reason: python tools/house.py"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[rooms.a", "TOMLDecodeError"),
        ("rooms = 3", "AttributeError"),
        ("[rooms.a]\nlines = 3", "KeyError: 'modules'"),
        ("[rooms.a]\nmodules = []\nlines = 3\nfiles = 1", "KeyError: 'source'"),
        ("[rooms]\n[source]\nlines = 1\nfiles = 1\n[tests]\nlines = 1\nfiles = 1", "no room for"),
    ],
)
def test_a_wrong_house_file_is_one_line(text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "house.toml").write_text(text)
    (tmp_path / "src").symlink_to(ROOT / "src")
    with pytest.raises(ValueError, match=r"house\.toml") as raised:
        measure(tmp_path)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
