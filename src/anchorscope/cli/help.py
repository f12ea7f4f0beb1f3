"""What help pages share: options in panels, and examples at the foot."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anchorscope.options import OUTPUT, RUNNING

ALL = "every option"
"""In a command's context: whether its help shows rare options too."""


def in_panel(name: str) -> Callable[..., Any]:
    """`typer.Option` for options that help shows together, under this name."""
    return partial(typer.Option, rich_help_panel=name)


running, output = in_panel(RUNNING), in_panel(OUTPUT)
Quiet = Annotated[bool, output("--quiet", help="No progress; errors only.")]
AsJson = Annotated[bool, output("--json", help="One JSON object on standard output.")]
_EXECUTOR_HELP = (
    "Who runs the model: local (this process), ray (workers on this machine) or ray:HOST:PORT (a cluster). The same "
    "bytes whichever it is. Default: local, and ray with --workers."
)
Executor = Annotated[str | None, running(help=_EXECUTOR_HELP)]
Workers = Annotated[
    int | None,
    running(help="Number of workers, on Ray. Default: as many as there is room for."),
]


def parameter(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command that is made from a table."""
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind, option],
    )


def with_options(
    parameters: Iterable[inspect.Parameter], after: int = 0
) -> Callable[[Callable[..., None]], Any]:
    """Replaces a command's `**options` by these parameters, after the first few of its own."""

    def change(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        *own, _ = signature.parameters.values()
        every = [*own[:after], *parameters, *own[after:]]
        command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in every}
        return command

    return change


class PlainCommand(TyperCommand):
    """A command whose help shows no type for flags, and leaves out rare options."""

    rare: frozenset[str] = frozenset()
    """The parameters that only `--help-all` shows."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            parameter.hidden = parameter.name in self.rare and not ctx.meta.get(ALL)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
        for parameter in self.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # the Tab key offers all

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


def in_help(examples: Sequence[tuple[str, str]]) -> str | None:
    """Pairs of purpose and command, for the end of a help page."""
    pairs = [
        # Typer reads brackets as markup.
        "\n".join(
            [
                *([f"[dim]# {purpose}[/dim]"] if purpose else []),
                command.replace("[", r"\["),
            ]
        )
        for purpose, command in examples
    ]
    return "\n\n".join(["Examples:", *pairs]) if pairs else None
