"""Damage to files, as disks, programs and people do it; the same seed does the same."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path


def flip(place: Path) -> None:
    """One bit."""
    content = bytearray(place.read_bytes())
    if content:
        content[random.Random(place.name).randrange(len(content))] ^= 1 << random.Random(place.name).randrange(8)
    place.write_bytes(content)


def halve(place: Path) -> None:
    """The end is missing."""
    place.write_bytes(place.read_bytes()[: place.stat().st_size // 2])


def empty(place: Path) -> None:
    """No byte is left."""
    place.write_bytes(b"")


def append(place: Path) -> None:
    """More bytes than there were."""
    place.write_bytes(place.read_bytes() + b"\0more")


def zero(place: Path) -> None:
    """As long as it was, and nothing in it: what some file systems leave after a power cut."""
    place.write_bytes(bytes(place.stat().st_size))


def folder(place: Path) -> None:
    """A folder of the same name."""
    place.unlink()
    place.mkdir()


def dangling(place: Path) -> None:
    """A link to nothing."""
    place.unlink()
    place.symlink_to("nowhere")


HARM: dict[str, Callable[[Path], None]] = {"flip": flip, "halve": halve, "empty": empty, "remove": Path.unlink}
"""The four of which every file is tried."""
MORE: dict[str, Callable[[Path], None]] = {
    **HARM,
    "append": append,
    "zero": zero,
    "folder": folder,
    "dangling": dangling,
}


def damaged(place: Path, rng: random.Random, others: list[Path]) -> str:
    """Harms a file in one way, or puts another's content in its place; which way."""
    way = rng.choice([*MORE, "swap"])
    if way == "swap":
        other = rng.choice([one for one in others if one != place] or [place])
        shutil.copyfile(other, place)
        return f"swap with {other.name}"
    MORE[way](place)
    return way


def files_of_steps(out: Path) -> dict[str, list[str]]:
    """The files of every step, by the index."""
    return {name: list(one["files"]) for name, one in json.loads((out / "index.json").read_text())["steps"].items()}
