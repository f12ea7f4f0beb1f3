"""What a further experiment gives: statistics, values per item, or the reason why it cannot be made.

All experiments fill the same two tables, so that a new one needs no new file format, and a program that reads one can
read them all. A statistic is never a bare number: it carries its interval, the number of items and how it was made.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class Statistic:
    """One row of experiments.csv; None where a column does not apply."""

    quantity: str
    """What the number is, in snake case: `flip_rate`, `auc`, `kappa` …"""
    estimate: Estimate
    variant: str | None = None
    """Which way of doing the experiment: a donor, a width, a head, a seed."""
    against: str | None = None
    """What the value is compared with, where it is a difference or an agreement."""
    assignment: str | None = None
    """The rule that made the groups."""
    group: str | None = None
    """The pathway."""
    truth: str | None = None
    """`all`, `true` or `false` answers."""
    layer: int | None = None
    """Where something was changed."""
    probe_layer: int | None = None
    """Where the probe reads."""
    p_value: float | None = None
    """Of the hypothesis that the value is what chance would give; the method says how."""
    q_value: float | None = None
    """The same with the false discovery rate controlled over the whole family of tests."""
    effect_size: float | None = None
    """In standard deviations: of the items for a mean, of the two groups together for a difference."""


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
    """What cannot be done here, each with its reason; never a row of zeros instead."""
