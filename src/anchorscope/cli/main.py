"""The command `anchorscope`: one thin door per job.

A wrong command, option or value is told in one line on standard error, with the nearest right name, and leaves with
exit code 2, as every other mistake of the user does. Nothing here imports torch: help has to come at once.
"""

import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anchorscope.cli.bench import bench
from anchorscope.cli.compare import compare
from anchorscope.cli.data import data
from anchorscope.cli.detect import detect
from anchorscope.cli.models import models
from anchorscope.cli.run import run
from anchorscope.cli.score import score
from anchorscope.cli.show import show
from anchorscope.cli.terminal import say, user_errors
from anchorscope.cli.validate import validate

# Typer brings its own copy of click, older ones use the click package: the parent of BadParameter is right in both.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class OneLineGroup(TyperGroup):
    """Tells usage errors as one line instead of a panel, and wraps every command in `user_errors`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        as_program = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False  # click then raises usage errors instead of drawing them
        if not as_program:
            return super().main(*args, **kwargs)
        try:
            code = super().main(*args, **kwargs)
        except _UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # that one has shown the help already
                say(_told(error))
            sys.exit(2)
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
    line = " ".join(text.split())
    return f"error: {line if line.endswith(('.', '?', '!')) else line + '.'}{hint}{where}"


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("anchorscope")
        except metadata.PackageNotFoundError:
            number = "(run from source, not installed)"
        typer.echo(f"anchorscope {number}")
        raise typer.Exit


app = typer.Typer(
    cls=OneLineGroup,
    no_args_is_help=True,
    add_completion=False,
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


app.command("run")(run)
app.command("compare")(compare)
app.command("detect")(detect)
app.command("score")(score)
app.command("show")(show)
app.command("data")(data)
app.command("models")(models)
app.command("bench")(bench)
app.command("validate")(validate)


def main() -> None:
    """The console script's entry."""
    app(prog_name="anchorscope")
