"""Which differences between runs matter when they are compared: the one table that says so.

A chart with a panel per model is read as if the model were all that changes. So whatever changes *what is measured* is
refused unless the user allows it by name; what changes *how well* it is measured is shown as a flag; the rest is left
alone. Every option of a recipe says so itself, with the reason.
"""

from anchorscope.errors import unknown
from anchorscope.options import Rule, flag, option_of, refuse
from anchorscope.recipe import Recipe

OPTIONS: dict[str, Rule] = {
    name: option_of(field).compared for name, field in Recipe.model_fields.items()
}
"""Every option of a run, as its field in `Recipe` says."""

FOUND: dict[str, Rule] = {
    "datasets": refuse(
        "the runs have no dataset in common, so nothing is measured on the same questions"
    ),
    "some-datasets": flag("checks across models use only what all runs have"),
    "questions": flag("part of a difference may come from the questions"),
    "random-weights": flag(
        "such a model knows nothing: its chart is noise, and it is left out of every trend"
    ),
    "same-results": flag(
        "one is a copy of the other, or an exact repetition: they are no independent evidence"
    ),
    "versions": flag("numbers may differ for that reason alone"),
}
"""What is found in the results themselves and not in the recipes."""

RULES = {name.replace("_", "-"): rule for name, rule in {**OPTIONS, **FOUND}.items()}
REFUSABLE = tuple(name for name, rule in RULES.items() if rule.treatment == "refuse")
"""What `--allow` can name."""


def check_allowed(names: tuple[str, ...]) -> frozenset[str]:
    """The differences that the user allows; `all` stands for all of them."""
    for name in names:
        if name not in (*REFUSABLE, "all"):
            raise unknown("difference", name, (*REFUSABLE, "all"))
    return frozenset(REFUSABLE if "all" in names else names)
