"""The run's effects are those that plain transformers gives: eager attention, one item at a time, an explicit mask.

The function that recomputes them is in `recompute.py` beside this file and works on any finished run.
"""

from collections.abc import Callable

import pytest
import torch

import recompute as again
from recompute import mask_without, recompute
from recompute_fixtures import *  # noqa: F403
from recompute_fixtures import Finished

SITES, N_LAYERS = ("attention", "mlp", "residual"), 4


@pytest.fixture(scope="module")
def llama(finish: Callable[..., Finished]) -> Finished:
    return finish("llama")


def test_every_score_of_a_run_is_what_plain_transformers_gives(llama: Finished) -> None:
    found = recompute(*llama, n_items=20)
    assert found.log_odds < 1e-2
    assert found.probability < 1e-3
    # a tiny float32 model: the noise is far below what is measured
    assert found.log_odds < 1e-3 * found.effect
    assert found.effect > 0.02
    assert found.n_items == 20
    assert found.places == {(site, "final") for site in SITES}
    assert found.n_scores == 20 * len(SITES) * N_LAYERS * 2


@pytest.mark.parametrize(
    "wrong", ["nothing is cut", "one key is left", "one query is left"]
)
def test_the_comparison_notices_a_wrong_mask(
    llama: Finished, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(
        n: int,
        keys: list[int],
        edges: str,
        answer_start: int | None,
        window: int | None,
    ) -> torch.Tensor:
        if not keys or wrong == "nothing is cut":
            return mask_without(n, [], "all", None, window)
        if wrong == "one key is left":
            return mask_without(n, keys[:-1], "all", None, window)
        mask = mask_without(n, keys, "all", None, window)
        mask[:, :, -1, keys] = 0.0
        return mask

    monkeypatch.setattr(again, "mask_without", mistaken)
    assert recompute(*llama, n_items=3).log_odds > 1e-3


def test_edges_between_exact_tokens_alone_change_nothing(
    llama: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else sees the exact tokens, in any layer, so what they see of each other reaches no probe."""
    monkeypatch.setattr(
        again,
        "mask_without",
        lambda n, keys, *_: mask_without(n, keys, "outside", None),
    )
    found = recompute(*llama, n_items=3)
    assert found.log_odds < 1e-3 * found.effect
