"""What an experiment is: a function from measurements of one dataset to statistics and values per item, or why not.

All experiments fill the same two tables. An experiment's file also holds its section of the page, which is drawn
without torch: functions that compute import torch themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.evidence.delta_p import Calls, Measured, pathways
from anchorscope.items import Item
from anchorscope.plugins import load_at
from anchorscope.progress import Progress
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.evidence.effects import CutStates, Scoring
    from anchorscope.execute.executor import Executor
    from anchorscope.experiments.section import SectionSpec
    from anchorscope.interventions.intervention import Setting
    from anchorscope.plan.passes import Planner
    from anchorscope.probes.crossfit import ProbeSet, Splits


@dataclass(frozen=True)
class Statistic:
    quantity: str
    """In snake case: `flip_rate`, `auc` …"""
    estimate: Estimate
    variant: str | None = None
    """Which way of doing the experiment: a donor, a width, a head."""
    against: str | None = None
    """What the value is compared with, where it is a difference."""
    group: str | None = None
    truth: str | None = None
    """`all`, `true` or `false` answers."""
    layer: int | None = None
    """Where something was changed."""
    probe_layer: int | None = None
    p_value: float | None = None
    """Two-sided, against chance; the method says how."""
    q_value: float | None = None
    """With the false discovery rate controlled over the family of tests."""


@dataclass(frozen=True)
class ItemValues:
    """One number for each of some items: rows of experiment_items.parquet."""

    quantity: str
    items: NDArray[np.int64]
    """Indices into the used items."""
    values: NDArray[np.floating]
    variant: str | None = None


@dataclass(frozen=True)
class Found:
    """What an experiment found on one dataset."""

    statistics: tuple[Statistic, ...] = ()
    values: tuple[ItemValues, ...] = ()
    missing: tuple[str, ...] = ()
    """What can't be done here, with the reason; never a row of zeros instead."""


@dataclass(frozen=True)
class ExperimentInputs:
    """One dataset, measured at the headline site and position."""

    dataset: str
    items: Sequence[Item]
    used: NDArray[np.int64]
    """Which of the items are used; all arrays below run over these."""
    states: Callable[[], Tensor]
    """Gives the clean states at the headline site and position, [layer, item, d_model], in host memory."""
    cut_states: Callable[[], CutStates]
    """The same under the knockout and the random control."""
    states_before_answer: Callable[[], Tensor]
    """The same, clean, before the answer begins."""
    scoring: Scoring
    splits: Splits
    measured: Measured
    """Log-odds at the headline site and position, before and after every intervention."""
    headline: tuple[int, int]
    """(position, site) as indices."""
    weights: NDArray[np.floating]
    """Bootstrap weights over groups, [resample, item]."""
    setting: Setting
    window: int | None
    """Layers in a window; None for a quarter of the depth."""
    max_new_tokens: int
    executor: Executor
    """Runs passes; the model is loaded only if one is run."""
    planner: Planner
    directions: Callable[[int], int]
    """Principal directions that the states of so many items are reduced to for the parts, as `--directions` says."""
    device: str
    progress: Progress
    sources: Callable[[], Mapping[str, NDArray[np.floating]]] = dict
    """What was measured of every source, see `evidence/sources.py`; empty where items have none."""
    band: Sequence[int] = ()
    """Layers whose AUC is within one standard error of the best."""

    @property
    def n(self) -> int:
        return len(self.used)

    @cached_property
    def used_items(self) -> list[Item]:
        return [self.items[index] for index in self.used]

    @property
    def prefix(self) -> tuple[int, ...]:
        """The leading tokens that all items share."""
        located = self.used_items[0].located
        return located.input_ids[: located.prefix_length]

    @property
    def probes(self) -> ProbeSet:
        position, site = self.headline
        return self.scoring.sets[position][site]

    @property
    def reference(self) -> NDArray[np.int64]:
        """The reference layer of each item's own fold."""
        return self.measured.reference[self.measured.folds]

    @property
    def most_frequent_reference(self) -> int:
        """The reference layer of most folds; of equally frequent ones the lowest, which most items can see."""
        return int(np.argmax(np.bincount(self.measured.reference)))

    @cached_property
    def draws(self) -> Draws:
        from anchorscope.evidence.draws import Draws

        return Draws.of(self.weights, self.device)

    @cached_property
    def calls(self) -> Calls:
        """Who is in which pathway."""
        return pathways(self.measured)

    def rng(self, name: str) -> np.random.Generator:
        return stream(self.setting.seed, "experiment", self.dataset, name)

    def some_items(self) -> NDArray[np.int64]:
        """The items of an experiment that takes many passes: all, or that many drawn at random, in order."""
        from anchorscope.plan.interventions import some_items

        return some_items(self.used_items, self.setting)


@dataclass(frozen=True)
class Experiment:
    name: str
    about: str
    """What is computed, for the dry run."""
    run: Callable[[ExperimentInputs], Found]
    section: SectionSpec | None = None
    """A plug-in's section of the page; of our own experiments the catalogue names it."""


def chosen_experiments(evidence: Sequence[str]) -> list[Experiment]:
    """Those asked for that are more than interventions, in the order in which they run."""
    homes = {
        name: entry.home
        for name, entry in EXPERIMENTS.items()
        if name in evidence and entry.home is not None
    }
    return [load_at("experiments", name, home) for name, home in homes.items()]
