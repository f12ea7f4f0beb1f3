"""Slow references of the detection metrics: items repeated by their weights, loops over every k and every order."""

from fractions import Fraction
from itertools import permutations

import numpy as np


def repeated(weights: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """Every item as often as its whole weight says."""
    return [np.repeat(value, weights.astype(int)) for value in values]


def orders(scores: np.ndarray) -> list[tuple[int, ...]]:
    """All orders of few items from high to low, ties in every way."""
    return [one for one in permutations(range(len(scores))) if all(np.diff(scores[list(one)]) <= 0)]


def accuracies(truthful: np.ndarray, order: tuple[int, ...]) -> list[Fraction]:
    """Share of true answers among the k first, k = 1 … n."""
    return [Fraction(int(truthful[list(order[: k + 1])].sum()), k + 1) for k in range(len(order))]


def area(scores: np.ndarray, truthful: np.ndarray) -> float:
    """Mean accuracy over what is kept, mean over all orders of ties."""
    means = [sum(accuracies(truthful, one)) / len(scores) for one in orders(scores)]
    return float(sum(means) / len(means))


def share_at(scores: np.ndarray, truthful: np.ndarray, coverage: float) -> float:
    """Accuracy at a coverage; part of the last item, mean over all orders of ties."""
    found = []
    for one in orders(scores):
        left, true = coverage * len(scores), 0.0
        for item in one:
            part = min(1.0, left)
            left, true = left - part, true + part * truthful[item]
        found.append(true / (coverage * len(scores)))
    return float(np.mean(found))


def equal_mass_error(probability: np.ndarray, truthful: np.ndarray, bins: int) -> float:
    """Every item cut into as many parts as there are bins: bins then hold whole parts; ties get their mean truth."""
    mean_truth = np.array([truthful[probability == one].mean() for one in probability])
    order = np.argsort(probability)
    said, so = np.repeat(probability[order], bins), np.repeat(mean_truth[order], bins)
    pairs = zip(np.split(said, bins), np.split(so, bins), strict=True)
    return float(np.mean([abs(one.mean() - other.mean()) for one, other in pairs]))
