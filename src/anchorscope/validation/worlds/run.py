"""All rules in all worlds: replicas are drawn, solved together, and marked."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anchorscope.progress import Progress, Silent
from anchorscope.stats.streams import stream
from anchorscope.validation.worlds.marks import Marks, mark
from anchorscope.validation.worlds.quantities import Quantities
from anchorscope.validation.worlds.setting import Setting
from anchorscope.validation.worlds.share_rules import QUESTION_SHARE, lost_in_world, question_share_rule
from anchorscope.validation.worlds.sorting_rules import sorting_rules
from anchorscope.validation.worlds.states import make_states
from anchorscope.validation.worlds.truth import N_ENDLESS, Truth, find_truth
from anchorscope.validation.worlds.world import WORLDS, World

SIZES = {300: 20, 1000: 20, 3000: 3}
"""Items of a replica, and how many replicas there are where none are asked for."""
MOST_SORTED = 3
"""Replicas on which the sorting rules are run: their numbers hardly vary, and each replica is resampled by itself."""
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
        runner = _Runner(size, replicas or SIZES.get(size, 20), device, seed)
        for name in names:
            marks += runner.mark(WORLDS[name], truths[name])
            listener.advance(1)
    listener.finish()
    return Found(truths, tuple(marks))


class _Runner:
    """The replicas of one number of items."""

    def __init__(self, n: int, replicas: int, device: str | torch.device, seed: int) -> None:
        self.n, self.replicas, self.device, self.seed = n, replicas, device, seed
        self._settings: dict[bool, Setting] = {}

    def mark(self, world: World, truth: Truth) -> list[Marks]:
        """All rules in a world."""
        found = self._replicas(world, truth)
        in_twin = self._replicas(world.twin, truth) if world.has_kinds else found
        return [mark(world.name, rule, self.n, truth, one, in_twin[rule]) for rule, one in found.items()]

    def _replicas(self, world: World, truth: Truth) -> ByRule:
        found: ByRule = {}
        for start in range(0, self.replicas, _AT_ONCE):
            number = min(_AT_ONCE, self.replicas - start)
            for rule, quantities in self._block(world, truth, start, number).items():
                found.setdefault(rule, []).extend(quantities)
        return found

    def _block(self, world: World, truth: Truth, start: int, number: int) -> ByRule:
        rng = stream(self.seed, "world", world.name, world.division, str(self.n), str(start))
        made = make_states(world, self.n, number, rng)
        if world.by_relation not in self._settings:  # labels are the same in all other worlds
            self._settings[world.by_relation] = Setting.of(made, self.seed, self.device)
        setting = self._settings[world.by_relation]
        found: ByRule = {}
        if start < MOST_SORTED:
            found |= sorting_rules(world, made.take(MOST_SORTED), setting)
        lost = lost_in_world(made, setting)
        found[QUESTION_SHARE] = question_share_rule(world, truth, made, setting, lost)
        return found
