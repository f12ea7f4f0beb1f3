"""All interventions, by name, in the order in which they run."""

from collections.abc import Sequence
from dataclasses import replace

from anchorscope.interventions.cuts import CONTENT, DIRECT, KNOCKOUT, NONE, PROPERTY, RANDOM, SUBJECT, TEMPLATE, ZEROING
from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.rewrites import (
    ANSWER_BARE,
    ANSWER_TEMPLATE,
    PATCH_CONTROL,
    PATCH_RANDOM,
    PATCH_SAME,
    PATCH_SELF,
)

INTERVENTIONS: dict[str, Intervention] = {
    one.name: one
    for one in (
        KNOCKOUT,
        RANDOM,
        NONE,
        SUBJECT,
        PROPERTY,
        CONTENT,
        TEMPLATE,
        DIRECT,
        ZEROING,
        PATCH_SAME,
        PATCH_RANDOM,
        PATCH_SELF,
        PATCH_CONTROL,
        ANSWER_TEMPLATE,
        ANSWER_BARE,
    )
}


def of_experiments(names: Sequence[str]) -> list[Intervention]:
    """The interventions of the named experiments."""
    return [one for one in INTERVENTIONS.values() if one.entry.experiment in names]


def with_draws(interventions: Sequence[Intervention], number: int) -> list[Intervention]:
    """The same, so many draws of each that is drawn several times; the others once."""
    return [replace(one, draw=draw) for one in interventions for draw in range(number if one.repeats else 1)]
