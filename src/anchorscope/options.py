"""How an option of a run is declared: once, as a field of `Recipe`, with all that others need to know about it.

The field has the type, the limits and, as its docstring, the help text. `option` adds the default, the panel of the
help page, the words it may take, and how `compare` treats runs that differ in it. The command line, the signature and
docstring of `anchorscope.run`, the reference in the docs, study files and error messages are made from that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

DATA, MEASUREMENT, STATISTICS = "Model and data", "Measurement", "Statistics"
EVIDENCE, RUNNING, OUTPUT = "Evidence", "Running", "Output"
PANELS = (DATA, MEASUREMENT, STATISTICS, EVIDENCE, RUNNING, OUTPUT)
"""Parts of a help page, in their order."""


@dataclass(frozen=True)
class Rule:
    """How `compare` treats a difference between runs."""

    treatment: Literal["refuse", "flag", "ignore"]
    reason: str
    """What the difference does; part of a message, so it begins with a small letter."""


def refuse(reason: str) -> Rule:
    """The runs measured something else: they are compared only where the user allows it by name."""
    return Rule("refuse", reason)


def flag(reason: str) -> Rule:
    """The runs measured the same thing in another way: the comparison says so."""
    return Rule("flag", reason)


def ignore(reason: str) -> Rule:
    """The difference concerns no number that is compared."""
    return Rule("ignore", reason)


@dataclass(frozen=True)
class Option:
    """What a field of `Recipe` says about itself beside type, default and help."""

    panel: str
    compared: Rule
    choices: tuple[str, ...] = ()
    """The words that it takes; empty where it takes others."""
    offered: tuple[str, ...] = ()
    """Words that the Tab key offers where others are possible too."""
    is_common: bool = False
    """Whether `run --help` shows it; `run --help-all` shows every option."""


def option(
    default: Any,
    panel: str,
    compared: Rule,
    *,
    choices: tuple[str, ...] = (),
    offered: tuple[str, ...] = (),
    common: bool = False,
    **limits: Any,
) -> Any:
    """A field of `Recipe`; `limits` are pydantic's (`ge`, `le`)."""
    from pydantic import Field  # only here: the overview of all commands needs the panels and has to come at once

    about = Option(panel, compared, choices, offered or choices, common)
    return Field(default=default, json_schema_extra={"option": about}, **limits)  # type: ignore[dict-item]


def option_of(field: "FieldInfo") -> Option:
    """What a field says about itself."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict), "every field of a recipe is declared with `option`"
    return extra["option"]  # type: ignore[return-value]
