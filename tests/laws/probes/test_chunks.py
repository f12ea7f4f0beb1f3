"""How much is solved at once: sizes from the plan, the same probes in any chunks, smaller ones where memory ends."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from anchorscope.errors import UserError
from anchorscope.models.process_settings import threads
from anchorscope.probes import chunks
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.crossfit import ProbeSet, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.logistic import Fit, TrainingSets, fit_layers
from anchorscope.stats.streams import unnamed

CPU = torch.device("cpu")
LAYERS, ITEMS, WIDTH = 5, 130, 24


@pytest.fixture(scope="module")
def states() -> torch.Tensor:
    rng = np.random.default_rng(0)
    leading = rng.normal(size=(LAYERS, ITEMS, 6)) @ (
        10 * rng.normal(size=(LAYERS, 6, WIDTH))
    )
    noise = rng.normal(size=(LAYERS, ITEMS, WIDTH))
    return torch.tensor(
        leading + noise * np.arange(1, LAYERS + 1)[:, None, None], dtype=torch.float32
    )


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
        torch.testing.assert_close(
            getattr(one, name), getattr(other, name), rtol=1e-3, atol=2e-4
        )


@pytest.mark.parametrize(
    ("memory", "kind"),
    [(200_000, "problems"), (60_000, "columns"), (30_000, "states that do not fit")],
)
def test_little_memory_gives_the_same_probes(
    states: torch.Tensor,
    sets: TrainingSets,
    whole: Fit,
    memory: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "chunk_bytes", lambda device: memory)
    plan = plan_chunks((LAYERS, ITEMS, WIDTH), len(sets.members), CPU)
    assert plan.bytes(ITEMS, WIDTH) <= memory or kind == "states that do not fit"
    assert plan.problems < LAYERS
    assert (plan.columns < len(sets.members)) == (kind != "problems")
    assert_same(fit_layers(states, sets), whole)


def test_chunks_come_in_order_and_each_has_one_thread() -> None:
    states = torch.arange(7.0)[:, None, None].expand(7, 3, 2)
    threads = torch.get_num_threads()
    plan = ChunkPlan(2, 4)
    told = list(
        in_chunks(
            states,
            plan,
            CPU,
            lambda chunk, _: (chunk[:, 0, 0].tolist(), torch.get_num_threads()),
        )
    )
    assert told == [([0, 1], 1), ([2, 3], 1), ([4, 5], 1), ([6], 1)]
    assert torch.get_num_threads() == threads


GPU = torch.device("cuda")
OTHER = torch.device("mps")
"""A device that is not the CPU; nothing is computed there, since copying is replaced."""
SHAPES = [(180, 360, 576), (30, 2000, 4096), (5, 130, 24), (1, 50_000, 8192)]
N_COLUMNS = 360


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every time that memory was given back; what is copied stays where it is."""
    times: list[str] = []
    monkeypatch.setattr(chunks, "_fetched", lambda chunk, device: chunk)
    monkeypatch.setattr(chunks, "free_memory", lambda: times.append("freed"))
    return times


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    """A GPU with so much memory, in bytes."""
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda *_: SimpleNamespace(total_memory=total),
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, total))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: total - free)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gpus_plan_depends_on_all_its_memory_free_or_not(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = set()
    for free in (1, 20, 80):
        pretend_gpu(monkeypatch, total=80 * 2**30, free=free * 2**30)
        plans.add(plan_chunks(shape, N_COLUMNS, GPU))
    assert len(plans) == 1
    (plan,) = plans
    assert plan.bytes(*shape[1:]) <= 20 * 2**30  # a quarter
    pretend_gpu(monkeypatch, total=2**33, free=2**33)
    small = plan_chunks(shape, N_COLUMNS, GPU)
    # states that do not fit are tried all the same
    assert small.bytes(*shape[1:]) <= 2**31 or shape == SHAPES[3]
    # the others fit either, or are solved one problem at a time
    assert (small != plan) == (shape in SHAPES[:2])


def test_the_probes_bits_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    labels, groups = rng.random(150) < 0.5, rng.integers(0, 70, size=150)
    signal = labels[:, None] * rng.normal(size=(2, 5, 1, 40))
    states = torch.tensor(
        rng.normal(size=(2, 5, 150, 40)) + signal, dtype=torch.float32
    )
    folds = grouped_folds(
        groups, truth_strata(labels), 4, unnamed(0, "test", len(labels))
    )
    splits = make_splits(labels, groups, folds, seed=0)

    def fit(count: int) -> list[ProbeSet]:
        with threads(count):
            return fit_probes(states, splits, ["mlp/final", "residual/final"])

    for one, other in zip(fit(1), fit(2), strict=True):
        assert torch.equal(one.weight, other.weight)
        assert torch.equal(one.bias, other.bias)
        assert (one.strength == other.strength).all()
        assert (one.inner_auc == other.inner_auc).all()


def test_where_memory_runs_out_the_chunks_left_are_halved_and_nothing_is_lost(
    freed: list[str],
) -> None:
    tried = []

    def work(chunk: torch.Tensor, plan: ChunkPlan) -> list[float]:
        tried.append((len(chunk), plan.problems))
        # what others leave free shrinks under way
        if len(chunk) > (2 if chunk[0, 0, 0] >= 8 else 8):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return chunk[:, 0, 0].tolist()

    states = torch.arange(19.0)[:, None, None].expand(19, 3, 2)
    notes: list[str] = []
    found = list(in_chunks(states, ChunkPlan(8, 4), OTHER, work, notes))
    assert [value for part in found for value in part] == list(range(19))
    assert tried == [(8, 8), (8, 8), (4, 4), *[(2, 2)] * 5, (1, 2)]
    assert len(notes) == len(freed) == 2
    assert "mps" in notes[0]
    assert "instead of 8 layers with 4 fits each 4 layers with 4 fits each" in notes[0]


@pytest.mark.usefixtures("freed")
def test_where_nothing_can_be_smaller_the_user_is_told() -> None:
    def work(chunk: torch.Tensor, plan: ChunkPlan) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(
        UserError,
        match=r"mps does not suffice for a single probe on 30 items of width 20",
    ):
        list(in_chunks(torch.zeros(3, 30, 20), ChunkPlan(3, 8), OTHER, work))


@pytest.mark.usefixtures("freed")
def test_a_chunk_that_cannot_even_be_copied_is_halved_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetched(chunk: torch.Tensor, device: torch.device) -> torch.Tensor:
        if len(chunk) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return chunk

    monkeypatch.setattr(chunks, "_fetched", fetched)
    states = torch.arange(5.0)[:, None, None].expand(5, 3, 2)
    notes: list[str] = []
    found = list(
        in_chunks(states, ChunkPlan(4, 4), OTHER, lambda chunk, _: len(chunk), notes)
    )
    assert found == [2, 2, 1]
    assert len(notes) == 1
