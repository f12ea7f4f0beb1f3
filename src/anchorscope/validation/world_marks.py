"""All rules in all worlds: replicas are drawn, solved together, and marked; tables and sentences of what came out.

A rule passes where all that is defined for it is within its mark: the AUC within true and within false answers, where
that can be reached at all; the bias of the share; how often it claims two groups in the world's twin; and how many of
the items that it is sure of it calls wrong. Marks are compared with the means as they are: of ten replicas one false
alarm is too many, and more replicas tell whether that was chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from scipy.stats import binomtest
from scipy.stats import t as student

from anchorscope.evidence.measured import ASSIGNMENTS
from anchorscope.progress import Progress, Silent
from anchorscope.report.wording import count, listing, number
from anchorscope.report.worlds_section import TRUTH, WORLDS_SCHEMA, smallest_sizes
from anchorscope.stats.estimate import LEVEL, Estimate
from anchorscope.stats.streams import stream
from anchorscope.validation.world_rules import (
    ITEM_POSTERIOR,
    QUESTION_SHARE,
    Quantities,
    Setting,
    ShareRules,
    sorting_rules,
)
from anchorscope.validation.worlds import N_ENDLESS, WORLDS, Made, Truth, World, find_truth, make_states

LEAST_AUC = 0.8
"""For the pathway, within true and within false answers, where so much can be reached."""
MOST_BIAS = 0.05
"""Of the share, either way."""
MOST_ALARMS = 0.05
"""Share of the replicas with one pathway in which two groups are claimed."""
MOST_WRONG = 0.1
"""Share of wrong ones among the calls of either kind: the items that are called have a probability above 0.9."""
RATES = ("false_alarms", "power", "covered")
"""Quantities that are yes or no in a replica."""
_WRONG_CALLS = ("wrong_question_calls", "wrong_answer_calls")


@dataclass(frozen=True)
class Marks:
    """A rule in a world, over all replicas of one number of items."""

    world: str
    rule: str
    n: int
    """Items of a replica."""
    values: dict[str, Estimate]
    """By quantity; n of each is the number of replicas that it rests on."""
    passes: bool

    def value(self, quantity: str) -> float | None:
        """The mean of a quantity; None where it is not defined."""
        return self.values[quantity].value if quantity in self.values else None


def mark(
    world: str, rule: str, n: int, truth: Truth, found: Sequence[Quantities], in_twin: Sequence[Quantities]
) -> Marks:
    """Means over replicas; `in_twin` are those of the world's twin, the same ones where a world has one pathway."""
    values: dict[str, Estimate] = {}
    for quantity in dict.fromkeys(name for one in found for name in one):
        name = "power" if quantity == "claims" else quantity
        values[name] = _mean([one.get(quantity, np.nan) for one in found], name in RATES)
    values["false_alarms"] = _mean([one["claims"] for one in in_twin], True)
    if np.isnan(truth.ceiling[0]):
        values.pop("power", None)  # with one pathway a claim is a false alarm
    values = {name: one for name, one in values.items() if np.isfinite(one.value)}
    return Marks(world, rule, n, values, _passes(values, truth))


def _passes(values: dict[str, Estimate], truth: Truth) -> bool:
    reachable = dict(zip(("auc_true", "auc_false"), truth.ceiling, strict=True))
    aucs = [values[name].value >= LEAST_AUC for name in reachable if name in values and reachable[name] >= LEAST_AUC]
    bias = [abs(values["share_bias"].value) <= MOST_BIAS] if "share_bias" in values else []
    wrong = [values[name].value <= MOST_WRONG for name in _WRONG_CALLS if name in values]
    return all([*aucs, *bias, *wrong, values["false_alarms"].value <= MOST_ALARMS])


def _mean(values: Sequence[float], is_rate: bool) -> Estimate:
    """The mean over replicas; Wilson's interval of a rate, Student's of anything else."""
    known = np.array([one for one in values if np.isfinite(one)])
    n = len(known)
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0, "mean over replicas")
    value = float(known.mean())
    if is_rate:
        low, high = binomtest(int(known.sum()), n).proportion_ci(LEVEL, method="wilson")
        return Estimate(value, float(low), float(high), n, "share of replicas, Wilson's interval")
    if n == 1:
        return Estimate(value, np.nan, np.nan, 1, "one replica")
    half = float(student.ppf((1 + LEVEL) / 2, n - 1) * known.std(ddof=1) / np.sqrt(n))
    return Estimate(value, value - half, value + half, n, "mean over replicas, Student's interval")


@dataclass(frozen=True)
class Plan:
    """How many replicas of each kind there are at one number of items."""

    replicas: int
    """Of every world and of its twin, for the question share."""
    sorted: int
    """Of them, for the sorting rules: their numbers hardly vary, and each replica is resampled by itself."""
    called: int
    """Of them, for single items: a mixture takes as long as all else. Whether there are calls is asked in all twins."""


SIZES = {300: Plan(10, 3, 3), 1000: Plan(12, 3, 3), 3000: Plan(2, 2, 1)}
"""Items of a replica, and how many replicas there are where none are asked for."""
MORE_OF_ONE_PATHWAY = 3
"""So many times as many replicas of the world that all false alarms begin with."""
_AT_ONCE = 64  # replicas that are drawn together

ByRule = dict[str, list[Quantities]]


@dataclass(frozen=True)
class Found:
    """What came out of the worlds."""

    truths: dict[str, Truth]
    """Per world."""
    marks: tuple[Marks, ...]
    """Per world, rule and number of items."""


def run_worlds(
    replicas: int | None = None,
    n: int | Sequence[int] = tuple(SIZES),
    device: str | torch.device = "cpu",
    seed: int = 0,
    names: Sequence[str] = tuple(WORLDS),
    progress: Progress | None = None,
    endless: int = N_ENDLESS,
) -> Found:
    """Every rule in every world at every number of items; `replicas` of each, by default those of `SIZES`."""
    sizes = (n,) if isinstance(n, int) else tuple(n)
    listener = progress or Silent()
    listener.start("worlds", len(names) * len(sizes))
    truths = {name: find_truth(WORLDS[name], stream(seed, "world truth", name), endless) for name in names}
    marks: list[Marks] = []
    for size in sizes:
        runner = _Runner(size, _plan(size, replicas), device, seed)
        for name in names:
            marks += runner.mark(WORLDS[name], truths[name])
            listener.advance(1)
    listener.finish()
    return Found(truths, tuple(marks))


def _plan(n: int, replicas: int | None) -> Plan:
    """The usual plan of the nearest number of items, with other numbers of replicas where they are asked for."""
    usual = SIZES[min(SIZES, key=lambda size: abs(size - n))]
    if replicas is None:
        return usual
    return Plan(replicas, min(replicas, usual.sorted), min(replicas, max(usual.called, replicas // 10)))


class _Runner:
    """The replicas of one number of items."""

    def __init__(self, n: int, plan: Plan, device: str | torch.device, seed: int) -> None:
        self.n, self.plan, self.device, self.seed = n, plan, device, seed
        self._settings: dict[bool, Setting] = {}

    def mark(self, world: World, truth: Truth) -> list[Marks]:
        """All rules in a world."""
        if not world.has_kinds:
            found = self._replicas(world, truth, MORE_OF_ONE_PATHWAY * self.plan.replicas, self.plan.called, True)
            in_twin = found
        else:
            found = self._replicas(world, truth, self.plan.replicas, self.plan.called, False)
            in_twin = self._replicas(world.twin, truth, self.plan.replicas, 0, True)
        return [mark(world.name, rule, self.n, truth, one, in_twin[rule]) for rule, one in found.items()]

    def _replicas(self, world: World, truth: Truth, number: int, called: int, all_claims: bool) -> ByRule:
        found: ByRule = {}
        for start in range(0, number, _AT_ONCE):
            rng = stream(self.seed, "world", world.name, world.division, str(self.n), str(start))
            made = make_states(world, self.n, min(_AT_ONCE, number - start), rng)
            setting = self._setting(world, made)
            block: ByRule = {}
            if start == 0:
                block |= sorting_rules(world, made.take(self.plan.sorted), setting)
            rules = ShareRules.of(world, truth, made, setting)
            block |= {QUESTION_SHARE: rules.share(), ITEM_POSTERIOR: rules.items(called - start, all_claims)}
            for rule, quantities in block.items():
                found.setdefault(rule, []).extend(quantities)
        return found

    def _setting(self, world: World, made: Made) -> Setting:
        """Labels are the same in all worlds but the one with relations."""
        if world.by_relation not in self._settings:
            self._settings[world.by_relation] = Setting(made, self.seed, self.device)
        return self._settings[world.by_relation]


ONE_PATHWAY = "one-pathway"
_MAIN = ("auc_true", "auc_false", "share_bias", "false_alarms")
_USUAL = 1000  # items at which details are told, where there were so many


def worlds_table(found: Found) -> pl.DataFrame:
    """One row per world, rule, number of items and quantity; what is so in a world comes first."""
    rows: list[tuple[Any, ...]] = []
    for world, truth in found.truths.items():
        facts = {name: getattr(truth, name) for name in ("share", "whole_share", "probe_auc", "label_ceiling")}
        facts |= dict(zip(("ceiling_true", "ceiling_false"), truth.ceiling, strict=True))
        for quantity, value in facts.items():
            if np.isfinite(value):
                rows.append((world, TRUTH, None, quantity, value, None, None, None, None, "from one large draw"))
    for one in found.marks:
        for quantity, e in one.values.items():
            low, high = (end if np.isfinite(end) else None for end in (e.ci_low, e.ci_high))
            rows.append((one.world, one.rule, one.n, quantity, e.value, low, high, e.n, one.passes, e.method))
    return pl.DataFrame(rows, schema=WORLDS_SCHEMA, orient="row")


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
