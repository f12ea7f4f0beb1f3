"""The options of a recipe on the command line, made from the fields of `Recipe`.

`run --help` shows the common ones; `--help-all` shows all.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from anchorscope.cli.completion import one_of, several_of
from anchorscope.cli.help_texts import ALL
from anchorscope.cli.terminal import emit_text
from anchorscope.datasets.catalog import split_names, split_specs
from anchorscope.options import PANELS, option_of
from anchorscope.recipe import Recipe, about

_ON_THE_COMMAND_LINE = {"datasets": "dataset"}
"""Names that differ: one `--dataset` is given at a time."""


def add_recipe_options(command: Callable[..., None]) -> None:
    """Gives a command that takes `**options` a parameter for every field of `Recipe`, in the order of the panels."""
    signature = inspect.signature(command)
    own = [part for part in signature.parameters.values() if part.kind is not inspect.Parameter.VAR_KEYWORD]
    fields = sorted(Recipe.model_fields, key=lambda name: PANELS.index(option_of(Recipe.model_fields[name]).panel))
    recipe, *others = own
    every = [recipe, *map(_parameter, fields), *others]
    command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    command.__annotations__ = {part.name: part.annotation for part in every}


def _parameter(name: str) -> inspect.Parameter:
    field = Recipe.model_fields[name]
    kind: Any = field.annotation
    option, default = option_of(field), None
    several = get_origin(kind) is tuple
    flag = f"--{_ON_THE_COMMAND_LINE.get(name, name).replace('_', '-')}"
    text = f"{about(name)} Several with commas, or repeat the option." if several else about(name)
    if several:
        kind = list[str] | None
    elif kind is bool and field.default is False:
        default = False
    elif kind is bool:
        flag, kind = f"{flag}/--no-{flag[2:]}", bool | None
    elif type(None) not in (get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()):
        kind = kind | None
    shown = typer.Option(
        flag,
        help=text,
        show_default=False,
        rich_help_panel=option.panel,
        metavar=f"{_ON_THE_COMMAND_LINE.get(name, name).upper()},..." if several else None,
        autocompletion=(several_of if several else one_of)(option.offered) if option.offered else None,
    )
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=Annotated[kind, shown]
    )


def rare_options() -> frozenset[str]:
    """The fields of `Recipe` that are not common."""
    return frozenset(name for name, field in Recipe.model_fields.items() if not option_of(field).is_common)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe that were typed, as a recipe has them."""
    given = {}
    for name, value in options.items():
        if isinstance(value, list):
            value = (split_specs if name == "datasets" else split_names)(value) if value else None
        if value is not None and (value is not False or Recipe.model_fields[name].default is True):
            given[name] = value
    return given


def show_every_option(context: typer.Context, wanted: bool) -> None:
    """The help page with the options that `--help` leaves out."""
    if not wanted:
        return
    context.meta[ALL] = True
    emit_text(context.get_help())
    raise typer.Exit
