"""Principal directions, against NumPy's singular value decomposition."""

import numpy as np
import torch

from anchorscope.evidence_parts.principal import principal_states


def states_and_scores(n, width, seed=0):
    """States with falling variances, and their scores along the principal directions by NumPy."""
    rng = np.random.default_rng(seed)
    states = (
        rng.standard_normal((n, width)) * 0.6 ** np.arange(width)
    ) @ rng.standard_normal((width, width))
    states += rng.standard_normal(width) * 5
    standard = (states - states.mean(0)) / states.std(0)
    left, values, _ = np.linalg.svd(standard, full_matrices=False)
    return states, left * values


def test_scores_are_those_of_the_singular_value_decomposition():
    states, wanted = states_and_scores(200, 20)
    found = principal_states(torch.from_numpy(states)[None].float(), 5)[0].numpy()
    assert found.shape == (200, 5)
    for direction in range(5):
        sign = np.sign(found[:, direction] @ wanted[:, direction])
        np.testing.assert_allclose(
            sign * found[:, direction], wanted[:, direction], atol=0.02
        )


def test_problems_do_not_mix():
    first, second = (states_and_scores(80, 10, seed)[0] for seed in (0, 1))
    both = principal_states(torch.from_numpy(np.stack([first, second])).float(), 4)
    for place, states in enumerate((first, second)):
        alone = principal_states(torch.from_numpy(states)[None].float(), 4)[0]
        torch.testing.assert_close(both[place].abs(), alone.abs(), rtol=1e-3, atol=1e-3)
