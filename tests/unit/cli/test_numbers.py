"""Every number that a command takes, with hostile values: one line, exit code 2, and no folder that was not there."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
import typer
from typer import testing
from typer.testing import CliRunner

from anchorscope.cli.main import COMMANDS, app

HUGE = "9" * 400
TOO_LONG = "9" * 5000  # digits: Python itself refuses to read these
HOSTILE = ("-1", HUGE, TOO_LONG, "nan", "")
REQUIRED = {
    "run": [],
    "fit": [],
    "data": ["atlas"],
    "detect": ["no-run"],
    "score": ["Who?", "--detector", "no-bundle"],
    "serve": ["no-bundle"],
}


@pytest.fixture(scope="module", autouse=True)
def _one_command() -> Iterator[None]:
    """Typer builds all commands anew at every call, which takes longer than to refuse a number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


def numbers() -> list[tuple[str, str]]:
    commands = {
        name: getattr(import_module(f"anchorscope.cli.{file}"), name)
        for name, (file, _, _) in COMMANDS.items()
    }
    return [
        (name, f"--{option.replace('_', '-')}")
        for name, command in commands.items()
        if not isinstance(command, typer.Typer)
        for option, kind in get_type_hints(command).items()
        if kind in (int, float, int | None, float | None)
    ]


def test_the_table_has_all_of_them() -> None:
    found = numbers()
    assert {name for name, _ in found} <= set(REQUIRED)
    assert ("run", "--bootstrap") in found
    assert len(found) > 25


@pytest.mark.parametrize(
    ("command", "option"), numbers(), ids=lambda value: str(value).lstrip("-")
)
def test_a_bad_number_is_one_line(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ["--out", "a/b/c"] if command in ("run", "fit", "detect") else []
    for value in HOSTILE:
        result = CliRunner().invoke(
            app, [command, *REQUIRED[command], *out, option, value, "--quiet"]
        )
        assert result.exit_code == 2, (
            value[:20],
            result.output[-300:],
            result.exception,
        )
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert len(result.stderr) < 1200
        assert list(tmp_path.iterdir()) == [], value[:20]
