"""Lines and files of every room against the budgets in house.toml: `python tools/house.py` prints them.

Exit code 1 where a room is over its budget, 2 where house.toml cannot be used.
"""

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Room(NamedTuple):
    """A room's name, what it has and what it may have."""

    name: str
    lines: int
    files: int
    most_lines: int
    most_files: int

    @property
    def is_over(self) -> bool:
        return self.lines > self.most_lines or self.files > self.most_files


def measure(root: Path = ROOT) -> list[Room]:
    """Every room of `root`, then all of the source and the tests; ValueError in one line for a wrong house.toml."""
    try:
        house = tomllib.loads((root / "house.toml").read_text(encoding="utf-8"))
        budgets = {name: (room["modules"], room["lines"], room["files"]) for name, room in house["rooms"].items()}
        totals = [(name, house[name]["lines"], house[name]["files"]) for name in ("source", "tests")]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        wanted = "a table [rooms.NAME] with modules, lines and files for each room, [source] and [tests]"
        raise ValueError(f"house.toml cannot be used ({type(error).__name__}: {error}); it needs {wanted}.") from None
    room_of = {module: name for name, (modules, _, _) in budgets.items() for module in modules}
    package = root / "src" / "anchorscope"
    files: dict[str, list[Path]] = {name: [] for name in budgets}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        room = room_of.get("/".join(parts[:2])) or room_of.get(parts[0])
        if room is None:
            raise ValueError(f"house.toml names no room for {path.relative_to(root)}; add it to the modules of one.")
        files[room].append(path)
    rooms = [Room(name, _lines(files[name]), len(files[name]), *most) for name, (_, *most) in budgets.items()]
    folders = {"source": package, "tests": root / "tests"}
    return rooms + [_total(name, list(folders[name].rglob("*.py")), *most) for name, *most in totals]


def _total(name: str, files: list[Path], most_lines: int, most_files: int) -> Room:
    return Room(name, _lines(files), len(files), most_lines, most_files)


def _lines(files: list[Path]) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in files)


def main() -> int:
    """Prints the table."""
    try:
        rooms = measure()
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{'room':<34}{'files':>7}{'most':>7}{'lines':>9}{'most':>9}\n")
    for room in rooms:
        over = "  over" if room.is_over else ""
        sys.stdout.write(
            f"{room.name:<34}{room.files:>7}{room.most_files:>7}{room.lines:>9,}{room.most_lines:>9,}{over}\n"
        )
    return int(any(room.is_over for room in rooms))


if __name__ == "__main__":
    sys.exit(main())
