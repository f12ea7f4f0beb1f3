"""Which differences between runs matter when their charts stand side by side: the one table that says so.

A chart with a panel per model is read as if the model were all that changes. So whatever changes *what is measured* is
refused unless the user allows it by name; what changes *how well* it is measured is shown as a flag; the rest is left
alone. Every option of a recipe has its place here, with the reason.
"""

from dataclasses import dataclass
from typing import Literal

from anchorscope.errors import unknown

Treatment = Literal["refuse", "flag", "ignore"]


@dataclass(frozen=True)
class Rule:
    """How a difference is treated."""

    treatment: Treatment
    reason: str
    """Why; part of the message, so it begins with a small letter and says what the difference does."""


def _refuse(reason: str) -> Rule:
    return Rule("refuse", reason)


def _flag(reason: str) -> Rule:
    return Rule("flag", reason)


def _ignore(reason: str) -> Rule:
    return Rule("ignore", reason)


OPTIONS: dict[str, Rule] = {
    "model": _ignore("it is what is compared"),
    "datasets": _ignore("what was measured on is compared, not how its file was called; see FOUND"),
    "columns": _ignore("the questions themselves are compared"),
    "limit": _flag("other questions may have been asked"),
    "site": _refuse("the probes read another part of the block"),
    "position": _refuse("the probes read at another token"),
    "edges": _refuse("the knockout cuts other edges"),
    "balance": _refuse("true and false answers were drawn in another way, which changes what a probe can learn"),
    "group_by": _refuse("folds and intervals keep other items together"),
    "exact_tokens": _refuse("other words of the question are cut"),
    "random_cuts": _flag("the random control is the mean of another number of cuts"),
    "directions": _flag("the question share was computed in another number of principal directions"),
    "random_weights": _ignore("one more null of the question share, beside the same numbers"),
    "evidence": _ignore("the knockout and its controls are always run, and experiments do not change each other"),
    "evidence_items": _ignore("it concerns the further experiments only"),
    "window": _ignore("it concerns the further experiments only"),
    "prompt": _refuse("the question was put in another way"),
    "yes_no": _flag("yes/no questions are in one run and not in the other"),
    "on_bad_row": _ignore("what it leaves out shows in the questions, which are compared"),
    "large_files": _ignore("it says what may be read, not what is measured"),
    "seed": _flag("questions, folds and resamples were drawn anew"),
    "device": _ignore("what it changes is the precision, which is compared"),
    "dtype": _flag("the model computed in another precision"),
    "batch_tokens": _ignore("results do not depend on it"),
    "threads": _ignore("only the last digits depend on it"),
    "max_new_tokens": _flag("longer answers are cut off, and not used, at another length"),
    "max_per_class": _flag("another number of items may be used"),
    "folds": _flag("probes learned from another share of the items"),
    "bootstrap": _flag("intervals rest on another number of resamples"),
    "keep": _ignore("it says what stays in the folder, not what is measured"),
    "keep_layers": _ignore("it says what stays in the folder, not what is measured"),
    "report": _ignore("it says whether a page is made, not what is measured"),
    "trust_remote_code": _ignore("it says what may be loaded, not what is measured"),
    "allow_random_weights": _ignore("the weights themselves are looked at; see FOUND"),
}
"""Every field of `Recipe`."""

FOUND: dict[str, Rule] = {
    "datasets": _refuse("the runs have no dataset in common, so that nothing is measured on the same questions"),
    "some-datasets": _flag("readings across models use only what all runs have"),
    "questions": _flag("part of a difference may come from the questions"),
    "random-weights": _flag("such a model knows nothing: its chart is noise, and it is left out of every trend"),
    "same-weights": _flag("these panels show one model"),
    "versions": _flag("numbers may differ for that reason alone"),
}
"""What is found in the results themselves and not in the recipes."""

REFUSABLE = tuple(name.replace("_", "-") for name, rule in {**OPTIONS, **FOUND}.items() if rule.treatment == "refuse")
"""What `--allow` can name."""


def check_allowed(names: tuple[str, ...]) -> frozenset[str]:
    """The differences that the user allows; `all` stands for all of them."""
    for name in names:
        if name not in (*REFUSABLE, "all"):
            raise unknown("difference", name, (*REFUSABLE, "all"))
    return frozenset(REFUSABLE if "all" in names else names)
