"""Measured data made by hand: what analyses see of a run, without any model."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.measured import Measured
from anchorscope.evidence.tables import Evidence
from anchorscope.stats.estimate import group_weights

PROBES = ("full", "a", "b")


def random_measured(n: int = 150, n_layers: int = 4, n_folds: int = 3, seed: int = 0, n_none: int = 110) -> Measured:
    """Probes that are mostly right, a cut that moves everyone towards "false" and some of them more."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, n // 2, size=n))
    folds = groups % n_folds
    labels = rng.random(n) < 0.5
    sign = np.where(labels, 1.0, -1.0)
    shape = (len(PROBES), n_layers, n)
    before = 1.5 * sign + rng.normal(0, 1.5, shape)
    knockout = before * np.where(rng.random(n) < 0.5, -0.4, 0.9) - 1.0 + rng.normal(0, 0.3, shape)
    ran = np.sort(rng.choice(n, size=n_none, replace=False))
    everyone = np.arange(n)
    return Measured(
        labels=labels,
        groups=groups,
        folds=folds,
        probes=PROBES,
        before=before,
        after={
            "knockout": knockout,
            "random": before + rng.normal(0, 0.5, shape),
            "none": (before + rng.normal(0, 1e-3, shape))[:, :, ran],
        },
        ran={"knockout": everyone, "random": everyone, "none": ran},
        n_cut={"knockout": np.full(n, 3), "random": rng.integers(2, 4, n), "none": np.zeros(n_none, np.int64)},
        reference=rng.integers(0, n_layers, (len(PROBES), n_folds)),
    )


def exact_measured(
    before: NDArray[np.floating], after: NDArray[np.floating], labels: NDArray[np.bool_], n_folds: int = 2
) -> Measured:
    """Every probe says the same; items are their own groups; log-odds are [layer, item]; no controls."""
    n = len(labels)
    stack = lambda logits: np.broadcast_to(logits, (len(PROBES), *logits.shape)).copy()  # noqa: E731
    everyone = np.arange(n)
    return Measured(
        labels=labels,
        groups=everyone,
        folds=everyone % n_folds,
        probes=PROBES,
        before=stack(before),
        after={"knockout": stack(after)},
        ran={"knockout": everyone},
        n_cut={"knockout": np.full(n, 2)},
        reference=np.zeros((len(PROBES), n_folds), np.int64),
    )


def half_lose_their_signal(n_layers: int = 3, shift: float = 0.0) -> Measured:
    """All 48 items are called right with log-odds ±2; every second true and false one ends at ∓0.5; then the shift."""
    labels = np.arange(48) % 2 == 0
    loses = (np.arange(48) // 2) % 2 == 0
    sign = np.where(labels, 1.0, -1.0)
    before = np.tile(2.0 * sign, (n_layers, 1))
    after = np.tile(np.where(loses, -0.5, 2.0) * sign, (n_layers, 1)) + shift
    measured = exact_measured(before, after, labels)
    return replace(measured, folds=np.arange(48) // 24)  # each fold holds as many of every kind


def permuted(measured: Measured, order: NDArray[np.int64]) -> Measured:
    """The same items in another order."""
    place = np.argsort(order)  # where each old item stands now
    after, ran, n_cut = {}, {}, {}
    for name, items in measured.ran.items():
        moved = place[items]
        sorting = np.argsort(moved)
        ran[name] = moved[sorting]
        after[name] = measured.after[name][:, :, sorting]
        n_cut[name] = measured.n_cut[name][sorting]
    return replace(
        measured,
        labels=measured.labels[order],
        groups=measured.groups[order],
        folds=measured.folds[order],
        before=measured.before[:, :, order],
        after=after,
        ran=ran,
        n_cut=n_cut,
    )


def sigmoid(log_odds: NDArray[np.floating] | float) -> NDArray[np.floating]:
    """As everybody writes it."""
    return 1 / (1 + np.exp(-np.asarray(log_odds, dtype=float)))


def slow_shift(
    before: NDArray[np.floating], after: NDArray[np.floating], weights: NDArray[np.floating]
) -> NDArray[np.floating]:
    """The common shift of one fold and layer in each row of weights [resample, item], each item as often as it says."""
    found = []
    for row in weights.astype(int):
        x, y = np.sort(np.repeat(before, row))[::-1], np.sort(np.repeat(after, row))[::-1]
        true = int((x > 0).sum())
        if len(x) == 0:
            found.append(np.nan)
        elif true in (0, len(x)):  # the outermost item keeps its distance from zero
            found.append(y[0] - x[0] if true == 0 else y[-1] - x[-1])
        else:
            share = x[true - 1] / (x[true - 1] - x[true])
            found.append(y[true - 1] - share * (y[true - 1] - y[true]))
    return np.array(found)


def some_evidence(n: int = 60, n_layers: int = 3, n_folds: int = 2) -> Evidence:
    """All that the tables of a dataset are made from; one relation and one confidence are unknown."""
    draw, where = np.random.default_rng(4), ("mlp", "final")
    measured = random_measured(n, n_layers, n_folds, n_none=40)
    texts = [f"text {number}" for number in range(n)]
    confidence = [None, *draw.normal(size=n - 1).tolist()]
    return Evidence(
        "Tiny",
        "facts",
        texts,
        texts,
        texts,
        [None, *texts[1:]],
        confidence,
        confidence,
        dict.fromkeys(measured.after, "all"),
        {where: measured},
        {"knockout": draw.normal(size=(n_layers, n))},
        where,
        group_weights(measured.groups, 20, draw),
    )
