"""What help pages share: options in panels, and examples at the foot."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anchorscope.options import OUTPUT

ALL = "every option"
"""In a command's context: whether its help shows rare options too."""
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress; errors only.", rich_help_panel=OUTPUT)]
"""Whether nothing is told."""
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.", rich_help_panel=OUTPUT)]
"""Whether the result is for a program."""


class PlainCommand(TyperCommand):
    """A command whose help names no type beside a flag, and leaves out rare options."""

    rare: frozenset[str] = frozenset()
    """Names of the parameters that `--help` leaves out; `--help-all` shows them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help page."""
        for parameter in self.params:
            parameter.hidden = parameter.name in self.rare and not ctx.meta.get(ALL)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
        for parameter in self.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # the Tab key offers all

    def get_params(self, ctx: Any) -> Any:
        """All parameters, `--help` among them."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


def in_panel(name: str) -> Callable[..., Any]:
    """`typer.Option` for options that help shows together, under this name."""
    return partial(typer.Option, rich_help_panel=name)


def in_help(examples: Sequence[tuple[str, str]]) -> str | None:
    """Pairs of what for and command, as the foot of a help page."""
    pairs = [
        # Typer reads brackets as markup.
        "\n".join([*([f"[dim]# {purpose}[/dim]"] if purpose else []), command.replace("[", r"\[")])
        for purpose, command in examples
    ]
    return "\n\n".join(["Examples:", *pairs]) if pairs else None
