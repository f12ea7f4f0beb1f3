"""How every script of this folder reports: a table on the terminal, or one JSON object (`--json`, `--out FILE`).

Progress goes to standard error. A mistake is one line there, with exit code 2; a check that fails is exit code 1.
Needs nothing but torch and the standard library, so that it runs on a rented machine.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from anchorscope.errors import UserError
from anchorscope.json_text import to_json

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """What a script found."""

    facts: Mapping[str, Any]
    """What was measured, on what: one line above the table."""
    columns: Mapping[str, str]
    """The columns that the table shows, each with the format of its values, as in `{:.2f}×`."""
    rows: Sequence[Row]
    """The table's rows; JSON has all entries of a row, the table those that have a column."""
    notes: Sequence[str] = ()
    """Lines below the table."""
    failed: bool = False
    """Whether a check failed."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """For JSON only."""

    def record(self) -> dict[str, Any]:
        return {
            **self.facts,
            **self.details,
            "rows": list(self.rows),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        parts = [", ".join(_fact_words(self.facts))]
        if self.rows:
            head = [name.replace("_", " ") for name in self.columns]
            lines = [
                [_cell(row.get(name), form) for name, form in self.columns.items()]
                for row in self.rows
            ]
            parts.append(_aligned([head, *lines]))
        if self.notes:
            parts.append("\n".join(self.notes))
        return "\n\n".join(filter(None, parts))


def _fact_words(facts: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            words += _fact_words(value)
        elif value is not None:
            words.append(f"{name.replace('_', ' ')} {_cell(value, '{}')}")
    return words


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(one, form) for one in value)
    if isinstance(value, str):
        return value
    return form.format(value)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns of equal width: numbers to the right, columns with a letter in them to the left."""
    columns = [list(column) for column in zip(*lines, strict=True)]
    for cells in columns:
        width = max(map(len, cells))
        is_text = any(cell[:1].isalpha() for cell in cells[1:])
        for at, cell in enumerate(cells):
            cells[at] = cell.ljust(width) if is_text else cell.rjust(width)
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What a number depends on besides the code."""
    on_gpu = torch.device(device).type == "cuda"
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if on_gpu else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"{text}\n")


class Parser(argparse.ArgumentParser):
    """The options of a script, with those that all scripts have."""

    def __init__(self, about: str | None) -> None:
        super().__init__(
            description=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.add_argument("--json", action="store_true", help="one JSON object")
        self.add_argument("--out", type=Path, help="also write the JSON object here")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. See: {self.prog} --help\n")


def names(allowed: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads names with commas; each has to be one of these."""

    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        wrong = [name for name in chosen if name not in allowed]
        if wrong or not chosen:
            found = repr(wrong[0]) if wrong else "nothing"
            raise argparse.ArgumentTypeError(
                f"{found} is not allowed; allowed: {', '.join(allowed)}"
            )
        return chosen

    return read


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number."""

    def read(text: str) -> int:
        number = int(text) if text.isdecimal() and len(text) < 10 else -1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"{text[:20]!r} is not allowed; allowed: whole numbers from {least}"
            )
        return number

    return read


def run_script(parser: Parser, measure: Callable[[argparse.Namespace], Report]) -> int:
    """Reads the options, measures, reports; the exit code."""
    options = parser.parse_args()
    if options.out is not None and not options.out.parent.is_dir():
        parser.error(f"--out {options.out} is in a folder that does not exist")
    if options.out is not None and os.path.lexists(options.out):
        parser.error(f"--out {options.out} is there already; choose another name")
    try:
        report = measure(options)
    except UserError as error:
        sys.stderr.write("error: " + " ".join(str(error).split()) + "\n")
        return 2
    text = to_json(report.record())
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write((text if options.json else report.text()) + "\n")
    return 1 if report.failed else 0
