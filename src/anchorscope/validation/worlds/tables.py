"""What the worlds found, as a table, for programs, and in sentences."""

from typing import Any

import numpy as np
import polars as pl

from anchorscope.evidence.pathways import ASSIGNMENTS
from anchorscope.report.wording import count, listing, number
from anchorscope.report.worlds_section import TRUTH, WORLDS_SCHEMA, smallest_sizes
from anchorscope.validation.worlds.marks import Marks
from anchorscope.validation.worlds.run import Found
from anchorscope.validation.worlds.share_rules import ITEM_POSTERIOR, QUESTION_SHARE
from anchorscope.validation.worlds.truth import Truth

ONE_PATHWAY = "one-pathway"
_MAIN = ("auc_true", "auc_false", "share_bias", "false_alarms")
_USUAL = 1000  # items at which details are told, where there were so many


def worlds_table(found: Found) -> pl.DataFrame:
    """One row per world, rule, number of items and quantity; what is so in a world comes first."""
    rows: list[tuple[Any, ...]] = []
    for world, truth in found.truths.items():
        for quantity, value in _facts(truth).items():
            if np.isfinite(value):
                rows.append((world, TRUTH, None, quantity, value, None, None, None, None, "from one large draw"))
    for one in found.marks:
        for quantity, e in one.values.items():
            low, high = (end if np.isfinite(end) else None for end in (e.ci_low, e.ci_high))
            rows.append((one.world, one.rule, one.n, quantity, e.value, low, high, e.n, one.passes, e.method))
    return pl.DataFrame(rows, schema=WORLDS_SCHEMA, orient="row")


def _facts(truth: Truth) -> dict[str, float]:
    return {
        "share": truth.share,
        "whole_share": truth.whole_share,
        "probe_auc": truth.probe_auc,
        "label_ceiling": truth.label_ceiling,
        "ceiling_true": truth.ceiling[0],
        "ceiling_false": truth.ceiling[1],
    }


def shown_size(found: Found) -> int:
    """The number of items at which details are told."""
    sizes = sorted({one.n for one in found.marks})
    return _USUAL if _USUAL in sizes else sizes[-1]


def worlds_summary(found: Found) -> dict[str, dict[str, dict[str, Any]]]:
    """For programs: per world and rule what came out at `shown_size`; null where something is not defined."""
    size, smallest = shown_size(found), smallest_sizes(worlds_table(found).filter(pl.col("rule") != TRUTH))
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for one in found.marks:
        if one.n == size:
            told.setdefault(one.world, {})[one.rule] = _record(one) | {"smallest_n": smallest[one.world, one.rule]}
    return told


def _record(one: Marks) -> dict[str, Any]:
    more = {name: e.value for name, e in one.values.items() if name not in _MAIN}
    replicas = {"replicas": max(e.n for e in one.values.values())}
    return {name: one.value(name) for name in _MAIN} | {"n": one.n, "passes": one.passes} | replicas | more


def worlds_sentences(found: Found) -> list[str]:
    """The summary of the page."""
    size = shown_size(found)
    at = {(one.world, one.rule): one for one in found.marks if one.n == size}
    told = []
    if (ONE_PATHWAY, QUESTION_SHARE) in at:
        old = listing([f"{rule} {_percent(at[ONE_PATHWAY, rule].value('false_alarms'))}" for rule in ASSIGNMENTS])
        share, items = at[ONE_PATHWAY, QUESTION_SHARE], at[ONE_PATHWAY, ITEM_POSTERIOR]
        told.append(
            f"In a world with one pathway ({count(size)} items) these claim two groups, in so many of their replicas: "
            f"{old}; the question share's thirds do in {_percent(share.value('false_alarms'))} of "
            f"{share.values['false_alarms'].n} replicas, and single items are called in "
            f"{_percent(items.value('false_alarms'))}."
        )
    for rule in dict.fromkeys(one.rule for one in found.marks):
        passed = [world for world in found.truths if (world, rule) in at and at[world, rule].passes]
        told.append(
            f"At {count(size)} items {rule} passes in {len(passed)} of {len(found.truths)} harder worlds"
            + (f": {listing(passed)}." if passed else ".")
        )
    return told


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{number(100 * value, 0)} %"
