"""How much is solved at once: what fits is respected, and what is solved together, apart or streamed is equal."""

import numpy as np
import pytest
import torch

from anchorscope.probes import chunks
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.logistic import Fit, TrainingSets, fit_layers

CPU = torch.device("cpu")
LAYERS, ITEMS, WIDTH = 5, 130, 24


@pytest.fixture(scope="module")
def states() -> torch.Tensor:
    rng = np.random.default_rng(0)
    leading = rng.normal(size=(LAYERS, ITEMS, 6)) @ (10 * rng.normal(size=(LAYERS, 6, WIDTH)))
    noise = rng.normal(size=(LAYERS, ITEMS, WIDTH))
    return torch.tensor(leading + noise * np.arange(1, LAYERS + 1)[:, None, None], dtype=torch.float32)


@pytest.fixture(scope="module")
def sets() -> TrainingSets:
    item = torch.arange(ITEMS)
    scaled_on = torch.stack([item % 4 != fold for fold in range(4)])
    strengths = torch.tensor([1e-5, 1e-3, 0.1, 1.0])
    return TrainingSets(
        labels=(item * 7 % 13) < 6,
        members=scaled_on.repeat_interleave(4, dim=0),
        scaled_on=scaled_on,
        scaling=torch.arange(4).repeat_interleave(4),
        strengths=strengths.repeat(4),
    )


@pytest.fixture(scope="module")
def whole(states: torch.Tensor, sets: TrainingSets) -> Fit:
    fit = fit_layers(states, sets)
    assert fit.converged.all()
    return fit


def assert_same(one: Fit, other: Fit) -> None:
    assert torch.equal(one.converged, other.converged)
    for name in ("weight", "bias", "logits"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("memory", "kind"), [(200_000, "problems"), (60_000, "columns"), (30_000, "items"), (9_000, "items")]
)
def test_little_memory_gives_the_same_probes(
    states: torch.Tensor, sets: TrainingSets, whole: Fit, memory: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_chunk_bytes", lambda device: memory)
    plan = plan_chunks((LAYERS, ITEMS, WIDTH), len(sets.members), CPU)
    assert plan.bytes(ITEMS, WIDTH) <= memory or kind == "items"
    assert plan.problems < LAYERS
    assert (plan.columns < len(sets.members)) == (kind != "problems")
    assert (plan.items is not None) == (kind == "items")
    assert plan.items is None or plan.items < ITEMS
    assert_same(fit_layers(states, sets), whole)


def test_layers_do_not_depend_on_those_solved_with_them(states: torch.Tensor, sets: TrainingSets, whole: Fit) -> None:
    for layer in range(LAYERS):
        alone = fit_layers(states[layer : layer + 1], sets)
        place = slice(layer, layer + 1)
        assert_same(alone, Fit(*(getattr(whole, name)[place] for name in vars(whole))))


def test_chunks_come_in_order_and_each_has_one_thread() -> None:
    states = torch.arange(7.0)[:, None, None].expand(7, 3, 2)
    threads = torch.get_num_threads()
    plan = ChunkPlan(2, 4, None)
    told = list(in_chunks(states, plan, CPU, lambda chunk, _: (chunk[:, 0, 0].tolist(), torch.get_num_threads())))
    assert told == [([0, 1], 1), ([2, 3], 1), ([4, 5], 1), ([6], 1)]
    assert torch.get_num_threads() == threads
