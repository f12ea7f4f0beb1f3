"""What help pages share: options in panels, and examples at the foot."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

OUTPUT = "Output"
"""The panel of what is written and told."""
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress; errors only.", rich_help_panel=OUTPUT)]
"""Whether nothing is told."""
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.", rich_help_panel=OUTPUT)]
"""Whether the result is for a program."""


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
