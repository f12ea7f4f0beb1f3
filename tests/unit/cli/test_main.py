"""The doors: help comes without torch, mistakes are one line and exit code 2, JSON is one object on standard output."""

import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from anchorscope.cli import inspect
from anchorscope.cli.main import COMMANDS, EXAMPLES, app
from commands import invoke


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's own caches."""
    from huggingface_hub import constants

    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


def test_python_dash_m() -> None:
    command = [sys.executable, "-m", "anchorscope", "modles"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error: No such command 'modles'. Did you mean 'models'? See: anchorscope --help\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["models", "--instal", "x"],
            "No such option: --instal. Did you mean '--install'? See: anchorscope models --help",
        ),
        (
            ["models", "--from", "f.whl"],
            "--from f.whl needs to know which model that is; add --install smollm2-135m.",
        ),
        (["models", "--install"], "Option '--install' requires an argument."),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], message: str
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_stopped_command_says_so_and_our_own_mistakes_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> Path:
        raise error

    monkeypatch.setattr(inspect, "install", failing)
    error: BaseException = KeyboardInterrupt()
    result = invoke("models", "--install", "smollm2-135m")
    assert result.exit_code == 130
    assert (
        result.stderr
        == "stopped; nothing half made was kept, the same command starts again\n"
    )
    error = ZeroDivisionError()
    result = invoke("models", "--install", "smollm2-135m")
    assert isinstance(result.exception, ZeroDivisionError)


def test_commands_of_the_examples_are_ours_and_their_options_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    modules = [
        import_module(f"anchorscope.cli.{file}")
        for file in {file for file, _, _ in COMMANDS.values()}
    ]
    examples = [
        line
        for module in modules
        for lines in module.EXAMPLES.values()
        for _, line in lines
    ]
    assert len(examples) > 25
    for line in [*examples, *(line for _, line in EXAMPLES)]:
        name, *words = shlex.split(line[line.index("anchorscope ") :])[1:]
        command = commands[name]
        if hasattr(command, "commands"):
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
