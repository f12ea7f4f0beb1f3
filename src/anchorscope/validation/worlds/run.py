"""All rules in all worlds: replicas are drawn, solved together, and marked."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anchorscope.progress import Progress, Silent
from anchorscope.stats.streams import stream
from anchorscope.validation.worlds.marks import Marks, mark
from anchorscope.validation.worlds.quantities import Quantities
from anchorscope.validation.worlds.setting import Setting
from anchorscope.validation.worlds.share_rules import ITEM_POSTERIOR, QUESTION_SHARE, ShareRules
from anchorscope.validation.worlds.sorting_rules import sorting_rules
from anchorscope.validation.worlds.states import Made, make_states
from anchorscope.validation.worlds.truth import N_ENDLESS, Truth, find_truth
from anchorscope.validation.worlds.world import WORLDS, World


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
            self._settings[world.by_relation] = Setting.of(made, self.seed, self.device)
        return self._settings[world.by_relation]
