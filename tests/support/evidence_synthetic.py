"""Measured data made by hand: what analyses see of a run, without any model."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.delta_p import Measured
from anchorscope.evidence.tables import Evidence
from anchorscope.stats.estimate import group_weights


def random_measured(
    n: int = 150, n_layers: int = 4, n_folds: int = 3, seed: int = 0, n_none: int = 110
) -> Measured:
    """A probe that is mostly right, a cut that moves everyone towards "false" and some of them more."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, n // 2, size=n))
    folds = groups % n_folds
    labels = rng.random(n) < 0.5
    sign = np.where(labels, 1.0, -1.0)
    shape = (n_layers, n)
    before = 1.5 * sign + rng.normal(0, 1.5, shape)
    knockout = (
        before * np.where(rng.random(n) < 0.5, -0.4, 0.9)
        - 1.0
        + rng.normal(0, 0.3, shape)
    )
    ran = np.sort(rng.choice(n, size=n_none, replace=False))
    everyone = np.arange(n)
    return Measured(
        labels=labels,
        groups=groups,
        folds=folds,
        before=before,
        after={
            "knockout": knockout,
            "random": before + rng.normal(0, 0.5, shape),
            "none": (before + rng.normal(0, 1e-3, shape))[:, ran],
        },
        ran={"knockout": everyone, "random": everyone, "none": ran},
        reference=rng.integers(0, n_layers, n_folds),
    )


def half_lose_their_signal(shift: float = 0.0) -> Measured:
    """All 48 items are called right with log-odds ±2; every second true and false one ends at ∓0.5; then the shift.

    All three layers say the same; items are their own groups; there are no controls.
    """
    everyone, shape = np.arange(48), (3, 48)
    labels = everyone % 2 == 0
    sign = np.where(labels, 1.0, -1.0)
    after = np.where((everyone // 2) % 2 == 0, -0.5, 2.0) * sign + shift
    return Measured(
        labels=labels,
        groups=everyone,
        folds=everyone // 24,  # each fold holds as many of every kind
        before=np.broadcast_to(2.0 * sign, shape).copy(),
        after={"knockout": np.broadcast_to(after, shape).copy()},
        ran={"knockout": everyone},
        reference=np.zeros(2, np.int64),
    )


def permuted(measured: Measured, order: NDArray[np.int64]) -> Measured:
    place = np.argsort(order)  # where each old item stands now
    after, ran = {}, {}
    for name, items in measured.ran.items():
        moved = place[items]
        sorting = np.argsort(moved)
        ran[name] = moved[sorting]
        after[name] = measured.after[name][:, sorting]
    return replace(
        measured,
        labels=measured.labels[order],
        groups=measured.groups[order],
        folds=measured.folds[order],
        before=measured.before[:, order],
        after=after,
        ran=ran,
    )


def sigmoid(log_odds: NDArray[np.floating] | float) -> NDArray[np.floating]:
    return 1 / (1 + np.exp(-np.asarray(log_odds, dtype=float)))


def make_evidence(
    n: int = 200,
    n_layers: int = 4,
    n_folds: int = 3,
    relations: bool = True,
    confidence: bool = True,
) -> Evidence:
    """All that the tables of a dataset are made from: three sites whose scores are multiples of each other."""
    first = random_measured(n, n_layers, n_folds, n_none=n // 2)

    def scaled(scale: float) -> Measured:
        after = {name: scale * logits for name, logits in first.after.items()}
        return replace(first, before=scale * first.before, after=after)

    rng = np.random.default_rng(0)
    sure = rng.normal(size=n).tolist()
    return Evidence(
        model="Tiny",
        dataset="facts",
        item_ids=[f"item-{index}" for index in range(n)],
        questions=[
            f"What is the {word} of {index}?"
            for index, word in enumerate(rng.choice(["a1", "b2", "c3"], n))
        ],
        answers=[str(word) for word in rng.choice(["Rome", "Oslo", "Lima", "Bern"], n)],
        relations=[
            str(word) if relations else None
            for word in rng.choice(["capital", "author"], n)
        ],
        confidence_mean=sure if confidence else [None] * n,
        confidence_min=[one - 1 for one in sure] if confidence else [None] * n,
        variants=dict.fromkeys(first.after, "all"),
        places={
            (site, "final"): scaled(1 + 0.1 * number)
            for number, site in enumerate(SITES)
        },
        refits={
            "knockout": rng.normal(size=(n_layers, n)),
            "random": rng.normal(size=(n_layers, n)),
        },
        headline=("mlp", "final"),
        weights=group_weights(first.groups, 60, rng),
    )
