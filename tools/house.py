"""Tokens and files of every room against the budgets in house.toml: `python tools/house.py` prints them.

A reader pays per token, not per line: comments, docstrings and line breaks are free.
Exit code 1 where a room is over its budget, 2 where house.toml cannot be used.
"""

import ast
import io
import sys
import tokenize
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_FREE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Budget(NamedTuple):
    """The most that a room may have."""

    tokens: int
    files: int


class Room(NamedTuple):
    """A room's name, what it has and what it may have."""

    name: str
    tokens: int
    code_lines: int
    files: int
    budget: Budget

    @property
    def is_over(self) -> bool:
        return self.tokens > self.budget.tokens or self.files > self.budget.files

    @property
    def density(self) -> float:
        """Tokens per line of code."""
        return self.tokens / max(1, self.code_lines)


def measure(root: Path = ROOT) -> list[Room]:
    """Every room of `root`, all of source, tests and benchmarks, each plug-in; ValueError for a wrong house.toml."""
    try:
        house = tomllib.loads((root / "house.toml").read_text(encoding="utf-8"))
        budgets = {name: _budget(table) for name, table in house["rooms"].items()}
        totals = {
            name: _budget(house[name]) for name in ("source", "tests", "benchmarks")
        }
        plugins = {
            f"plugins/{name}": _budget(table)
            for name, table in house.get("plugins", {}).items()
        }
        room_of = {
            module: name
            for name, table in house["rooms"].items()
            for module in table["modules"]
        }
    except (
        OSError,
        tomllib.TOMLDecodeError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        wanted = "a table [rooms.NAME] with modules, tokens and files for each room, [source], [tests] and [benchmarks]"
        raise ValueError(
            f"house.toml cannot be used ({type(error).__name__}: {error}); it needs {wanted}."
        ) from None
    package = root / "src" / "anchorscope"
    files: dict[str, list[Path]] = {name: [] for name in budgets}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        room = room_of.get("/".join(parts[:2])) or room_of.get(parts[0])
        if room is None:
            raise ValueError(
                f"house.toml names no room for {path.relative_to(root)}; add it to the modules of one."
            )
        files[room].append(path)
    files["source"] = sorted(package.rglob("*.py"))
    for name in ("tests", "benchmarks"):
        files[name] = sorted((root / name).rglob("*.py"))
    for path in sorted(root.glob("plugins/*/pyproject.toml")):
        name = f"plugins/{path.parent.name}"
        if name not in plugins:
            raise ValueError(
                f"house.toml has no budget for {name}; add a table [plugins.{path.parent.name}]."
            )
        files[name] = sorted((path.parent / "src").rglob("*.py"))
        files["tests"] += sorted((path.parent / "tests").rglob("*.py"))
    every = budgets | totals | plugins
    return [_room(name, files[name], budget) for name, budget in every.items()]


def _budget(table: dict[str, int]) -> Budget:
    return Budget(tokens=table["tokens"], files=table["files"])


def _room(name: str, files: list[Path], budget: Budget) -> Room:
    counts = [count(path.read_text(encoding="utf-8")) for path in files]
    return Room(
        name=name,
        tokens=sum(each.tokens for each in counts),
        code_lines=sum(each.code_lines for each in counts),
        files=len(files),
        budget=budget,
    )


class Count(NamedTuple):
    """What a reader has to read of some source, without comments and docstrings."""

    tokens: int
    code_lines: int


def count(source: str) -> Count:
    documented = _docstring_lines(ast.parse(source))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _FREE and token.start[0] not in documented
    ]
    code = {
        line for token in tokens for line in range(token.start[0], token.end[0] + 1)
    }
    return Count(tokens=len(tokens), code_lines=len(code))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of every text that stands alone as a statement."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr):
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def main() -> int:
    """Prints the table."""
    try:
        rooms = measure()
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(
        f"{'room':<34}{'files':>7}{'most':>7}{'tokens':>9}{'most':>9}{'a line':>8}\n"
    )
    for room in rooms:
        sys.stdout.write(
            f"{room.name:<34}{room.files:>7}{room.budget.files:>7}{room.tokens:>9,}"
            f"{room.budget.tokens:>9,}{room.density:>8.1f}{'  over' if room.is_over else ''}\n"
        )
    return int(any(room.is_over for room in rooms))


if __name__ == "__main__":
    sys.exit(main())
