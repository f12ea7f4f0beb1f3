"""What may make a run's numbers worth less than they look: one list, in the manifest.

The page's card and the terminal show it as it is. What concerns the whole run comes first, then what the data of a
dataset does not allow, then what went wrong on the way.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl

from anchorscope.answers.choose import FOR_A_CHART
from anchorscope.artefacts.results import DatasetResult, LeftOut
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.sources import MARK

FEW_IN_FOLD = 5
"""With fewer held-out answers of one kind, a fold's AUC jumps with every single one."""
_BASE_RATES = "so base rates of kinds of questions may be what the probe reads"


def run_warnings(
    identity: ModelIdentity, balance: str, results: Sequence[DatasetResult], left_out: Sequence[LeftOut]
) -> list[str]:
    """Every warning of a run; `balance` is the recipe's."""
    found = [f"{MARK}: {identity.name} knows nothing, its chart is noise"] if identity.random_weights else []
    found += [f"not measured: {one.reason}" for one in left_out]
    for one in results:
        named = f"{one.name}: " if len(results) > 1 else ""
        found += [named + text for text in _of_data(one, balance)]
    for one in results:
        found += _unavailable(one)
        found += [f"probe not converged: {name}" for name in one.unconverged]
        found += one.notes
    return found


def _of_data(one: DatasetResult, balance: str) -> Iterator[str]:
    """What a dataset's questions and answers do not allow."""
    (supplied,), (asked,) = one.counts["supplied"], one.counts["asked"]
    used = one.items.filter(pl.col("status") == "used")
    if supplied:
        yield (
            f"{supplied:,} of {asked:,} answers were supplied: the probe reads the model's states on texts that it did "
            "not write"
        )
    if one.balanced_by == "none":
        yield f"true and false answers are not balanced (--balance none), {_BASE_RATES}"
    elif one.balanced_by == "dataset":
        why = "no relations: balanced" if balance == "relation" else "balanced (--balance dataset)"
        yield f"{why} over the whole dataset, {_BASE_RATES}"
    elif missing := used["relation"].null_count():
        yield f"{missing:,} of {used.height:,} used questions have no relation: they are balanced as if they had one"
    if one.grouped_by == "question":
        yield "no subjects: every question is its own group, so questions about one thing may stand in several folds"
    elif one.grouped_by == "subject" and (missing := used["subject"].null_count()):
        yield (
            f"{missing:,} of {used.height:,} used questions have no subject: each is its own group, so questions about "
            "one thing may stand in several folds"
        )
    if used.height < FOR_A_CHART:
        yield (
            f"{used.height:,} answers used, fewer than {FOR_A_CHART}: intervals are wide, and small differences stay "
            "undecided"
        )
    yield from _thin_folds(used)


def _thin_folds(used: pl.DataFrame) -> Iterator[str]:
    """The fold that holds fewest true or fewest false answers, if these are very few."""
    true, every = Counter(used.filter(pl.col("truthful"))["fold"]), Counter(used["fold"])
    fewest, kind = min(
        (count, kind) for fold in every for count, kind in ((true[fold], "true"), (every[fold] - true[fold], "false"))
    )
    if fewest < FEW_IN_FOLD:
        yield (
            f"one of {len(every)} folds holds {fewest} {kind} answer{'s' * (fewest != 1)}: what is measured in it "
            "hangs on single ones (fewer --folds, or more questions)"
        )


def _unavailable(one: DatasetResult) -> Iterator[str]:
    """What was asked for and cannot be done."""
    for (experiment,), rows in one.unavailable.group_by("experiment", maintain_order=True):
        more = f" (and {rows.height - 1} more, see the report)" if rows.height > 1 else ""
        reason = textwrap.shorten(rows["reason"][0], 240, placeholder=" …")
        yield f"not available on {one.name}, {experiment}: {reason}{more}"
