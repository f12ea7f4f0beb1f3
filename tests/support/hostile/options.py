"""Command lines that nobody meant: every option of every command with nonsense, twice, or against another one."""

import random
import signal
from functools import cache
from typing import Any

import typer

from hostile.case import Case
from hostile.stage import DETECTORS, FINISHED, OTHER, Stage
from hostile.values import INTEGERS, NUMBERS, on_command_line, text

_LONG = {"validate", "bench"}
"""Commands that work for minutes when they are called well."""


def make(rng: random.Random, stage: Stage, case: Case) -> None:
    """A command with odd options."""
    case.file("facts.jsonl", stage.facts.read_bytes())
    name = rng.choice([*commands(), "run", "run", "run"])
    case.words = [*name.split(), *_arguments(name, rng, stage)]
    case.file("study.toml", _study(stage).encode())
    known = [one for one in commands()[name].params if one.param_type_name == "option" and one.name != "help"]
    for option in rng.choices(known, k=rng.choice((1, 1, 2, 3, 6))) if known else ():
        case.words += _given(option, rng, case)
    if name == "run" and rng.random() < 0.85:
        case.words.append("--dry-run")
    if name == "view":
        case.words.append("--json")
    if rng.random() < 0.05:
        case.words.insert(rng.randrange(len(case.words)), text(rng))
    case.words = on_command_line(case.words)
    case.outs = ["."]
    case.reaches_out = case.may_ask_hub = True
    case.interrupt = (
        (3.0 if name in _LONG else 6.0, rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
        if name in (*_LONG, "run", "view", "detect", "serve")
        else None
    )


@cache
def commands() -> dict[str, Any]:
    """Every command by its name, those of groups with both words."""
    from anchorscope.cli.main import app

    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    groups = {name: one.commands for name, one in found.items() if hasattr(one, "commands")}
    own = {f"{name} {sub}": one for name, commands in groups.items() for sub, one in commands.items()}
    return {name: one for name, one in {**found, **own}.items() if name not in groups}


def _study(stage: Stage) -> str:
    """A study that ends soon: five questions are too few."""
    return f"models = [{str(stage.model)!r}]\ndatasets = ['file:facts.jsonl']\n[defaults]\nlimit = 5\ndevice = 'cpu'\n"


@cache
def _words() -> tuple[str, ...]:
    """Words that some option allows: good ones in the wrong place, or against each other."""
    from anchorscope.catalogue import EVIDENCE, KEEP
    from recipe_choices import CHOICES

    return tuple(sorted({*EVIDENCE, *KEEP, *(word for words in CHOICES.values() for word in words), "all", "3,10-14"}))


def _arguments(name: str, rng: random.Random, stage: Stage) -> list[str]:
    """What makes the command a good one, where nothing odd follows."""
    folder = stage.folder
    good = {
        "run": ["--model", str(stage.model), "--dataset", "file:facts.jsonl", "--out", "out"],
        "data": ["facts.jsonl"],
        "show": [str(folder / FINISHED)],
        "verify": [str(folder / FINISHED)],
        "view": [str(folder)],
        "compare": [str(folder / FINISHED), str(folder / OTHER), "--out", "out", "--allow", "all"],
        "detect": [str(folder / OTHER), "--out", "out", "--fit-only", "--bundles", "probe"],
        "score": ["--detector", str(folder / DETECTORS / "probe"), "--model", str(stage.model), "Who?"],
        "serve": [str(folder / DETECTORS / "probe"), "--model", str(stage.model), "--port", "0"],
        "detector card": [str(folder / DETECTORS / "probe")],
        "detector push": [str(folder / DETECTORS / "probe"), "somebody/something"],
        "validate": ["--out", "out"],
        **{f"study {name}": ["study.toml", "--out", "out"] for name in ("run", "status", "report")},
    }.get(name, [])
    if rng.random() < 0.15 and good:
        good[rng.randrange(len(good))] = text(rng)
    return good


def _given(option: Any, rng: random.Random, case: Case) -> list[str]:
    """An option with a value; flags have none, though some think so."""
    word = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [f"{word}={text(rng)}"] if rng.random() < 0.1 else [word]
    if _is_number(option):
        value = rng.choice(INTEGERS if rng.random() < 0.6 else NUMBERS)
    else:
        kind = rng.random()
        value = rng.choice(NUMBERS) if kind < 0.1 else rng.choice(_words()) if kind < 0.4 else text(rng)
    if rng.random() < 0.05:
        value = "facts.jsonl"  # a file of the user's
    elif rng.random() < 0.1:
        value = str(case.user / value.replace("/", "_")[:100])
    return [f"{word}={value}"] if rng.random() < 0.3 else [word, value]


def _is_number(option: Any) -> bool:
    """Whether an option takes a number; Typer's own copy of click and the click package tell it differently."""
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None) or getattr(option, "type", "")
    return any(word in str(kind).lower() for word in ("int", "float"))
