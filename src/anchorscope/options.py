"""How an option of a run is declared: once, as a field of `Recipe` with type, limits, default, and help as docstring.

The command line, the signature of `anchorscope.run`, the docs' reference, study files and error messages come from it.
"""

from dataclasses import dataclass
from functools import partial
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
    """Part of a message, so it begins with a small letter."""


refuse = partial(Rule, "refuse")
"""The runs measured something else: compared only if the user allows it by name."""
flag = partial(Rule, "flag")
"""The runs measured the same thing in another way: the comparison says so."""
ignore = partial(Rule, "ignore")
"""The difference affects no compared number."""


@dataclass(frozen=True)
class Option:
    """What a field of `Recipe` declares beside type, default and help."""

    panel: str
    compared: Rule
    choices: tuple[str, ...] = ()
    """The allowed words; empty for any."""
    is_common: bool = False
    """Whether `run --help` shows it; `run --help-all` shows every option."""


def option(
    default: Any,
    panel: str,
    compared: Rule,
    *,
    choices: tuple[str, ...] = (),
    common: bool = False,
    **limits: Any,
) -> Any:
    """A field of `Recipe`; `limits` are pydantic's (`ge`, `le`)."""
    from pydantic import (
        Field,
    )  # only here: the overview of all commands needs the panels and has to come at once

    about = Option(panel, compared, choices, common)
    return Field(default=default, json_schema_extra={"option": about}, **limits)  # type: ignore[dict-item]


def option_of(field: "FieldInfo") -> Option:
    extra = field.json_schema_extra
    assert isinstance(extra, dict), "every field of a recipe is declared with `option`"
    return extra["option"]  # type: ignore[return-value]


def split_list(text: str) -> tuple[str, ...]:
    """The parts of a list with commas, each once."""
    return tuple(
        dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    )
