"""Scores: every item by the probes of its own fold, equal to a plain loop."""

from itertools import product

import numpy as np
import pytest
import torch

from anchorscope.probes import crossfit
from anchorscope.probes.crossfit import ProbeSet, Scorer

POSITIONS, SITES, FOLDS, LAYERS, WIDTH = 2, 3, 4, 5, 8


def make_scorer(folds: np.ndarray) -> tuple[Scorer, list[list[ProbeSet]]]:
    generator = torch.Generator().manual_seed(0)

    def probe_set() -> ProbeSet:
        weight = torch.randn(FOLDS, LAYERS, WIDTH, generator=generator)
        bias = torch.randn(FOLDS, LAYERS, generator=generator)
        nothing = np.zeros((FOLDS, LAYERS))
        return ProbeSet(
            weight=weight,
            bias=bias,
            strength=nothing,
            inner_auc=nothing,
            unconverged=(),
        )

    probe_sets = [[probe_set() for _ in range(SITES)] for _ in range(POSITIONS)]
    return Scorer(probe_sets, folds, torch.device("cpu")), probe_sets


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at_once", [2**26, 1])
def test_scores_equal_a_plain_loop(
    dtype: torch.dtype, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crossfit, "_VALUES_AT_ONCE", at_once)
    folds = np.array([0, 3, 1, 1, 0, 2, 3, 0])
    scorer, probe_sets = make_scorer(folds)
    items = [6, 0, 5, 2, 7, 3]  # a batch in any order, some items left out
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(
        len(items), POSITIONS, SITES, LAYERS, WIDTH, generator=generator
    ).to(dtype)
    scores = scorer.score(items, states)
    assert scores.shape == (len(items), POSITIONS, SITES, LAYERS)
    assert scores.dtype == torch.float32
    for row, item in enumerate(items):
        for position, site in product(range(POSITIONS), range(SITES)):
            probes, state = (
                probe_sets[position][site],
                states[row, position, site].double(),
            )
            weight, bias = (
                part[folds[item]].double() for part in (probes.weight, probes.bias)
            )
            wanted = (weight * state).sum(-1) + bias
            torch.testing.assert_close(
                scores[row, position, site].double(), wanted, rtol=0, atol=1e-5
            )
