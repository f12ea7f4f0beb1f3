"""Who fits probes: this process, or a worker whose device it has not; the bits are those of the same kind of device."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from accelerated import Accelerated
from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.evidence.tables import evidence_tables
from anchorscope.evidence_parts.parts import (
    BEFORE,
    CUT,
    EvidenceItems,
    held_out_scores,
    solve_control,
    solve_parts,
)
from anchorscope.evidence_parts.principal import principal_states
from anchorscope.execute.executor import Solver, fit_device
from anchorscope.execute.numerics import NumericsClass
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import (
    fit_probes,
    make_splits,
    permuted_areas,
    permuted_truth,
    refit_logits,
    score_clean,
)
from anchorscope.probes.grid_search import search_chunks
from anchorscope.progress import Silent
from evidence_synthetic import make_evidence
from pass_cases import bits

ITEMS, LAYERS, WIDTH, FOLDS = 60, 3, 8, 2
NAMES = ["mlp/final", "residual/final"]
WIDE = ("solve_parts", "solve_control", "held_out_scores", "evidence_tables")
"""What is given float32 whatever the model computes in."""
CPU = NumericsClass("cpu: some processor", "float32", 2, {}, "aarch64", "0")
GPU = replace(CPU, device="NVIDIA H200", threads=0)


@pytest.mark.parametrize(
    ("here", "workers", "wanted"),
    [
        ("cpu", None, "cpu"),
        ("cuda", None, "cuda"),
        ("cuda:1", None, "cuda:1"),  # no workers
        ("cpu", CPU, "cpu"),  # sending states to another CPU only costs
        ("cuda", GPU, "cuda"),
        ("cuda", replace(GPU, device="2 × NVIDIA H200"), "cuda"),  # it has one itself
        ("cpu", GPU, "cuda"),
        ("cpu", replace(GPU, device="2 × NVIDIA H200"), "cuda"),
    ],
)
def test_only_a_device_that_this_machine_has_not_is_asked_of_workers(
    here: str, workers: NumericsClass | None, wanted: str
) -> None:
    assert fit_device(here, workers) == wanted


@cache
def cases(dtype: torch.dtype = torch.float32) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    draw = np.random.default_rng(1)
    labels, groups = np.arange(ITEMS) % 2 == 0, np.arange(ITEMS) // 2
    clean, cut = (
        torch.tensor(draw.normal(size=(2, LAYERS, ITEMS, WIDTH)) + labels[:, None]).to(
            dtype
        )
        for _ in "ab"
    )
    splits = make_splits(labels, groups, groups % FOLDS, seed=3)
    items = EvidenceItems(
        labels, groups, [None] * ITEMS, list(map(str, range(ITEMS))), 7
    )
    permuted = permuted_truth(splits, np.random.default_rng(2))[:5]
    sets = tuple((one,) for one in fit_probes(clean, splits, NAMES))
    made = {
        fit_probes: (clean, splits, NAMES),
        refit_logits: ("knockout", cut[0], splits),
        permuted_areas: (cut[0], splits, np.array([1, 2]), permuted),
        score_clean: (clean[:, None], sets, splits.folds),
        principal_states: (clean[0], 4),
        solve_parts: (
            {"clean": clean.float(), "knockout": cut.float(), BEFORE: cut[:1].float()},
            items,
            1,
            0,
        ),
        solve_control: (
            {"clean": clean[0].float(), CUT: cut[0].float(), BEFORE: cut[1].float()},
            items,
            "some",
        ),
        held_out_scores: (clean[0].float(), items, "some"),
        evidence_tables: (make_evidence(ITEMS, LAYERS, FOLDS),),
    }
    return {
        function.__name__: (function, arguments) for function, arguments in made.items()
    }


FUNCTIONS = tuple(cases())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in FUNCTIONS]
    + [(name, torch.bfloat16) for name in FUNCTIONS if name not in WIDE],
)
def test_a_worker_gives_the_bits_of_one_process(
    tiny_llama: LanguageModel, name: str, dtype: torch.dtype
) -> None:
    function, arguments = cases(dtype)[name]
    alone = function(*arguments, device="cpu", progress=Silent())
    here = Solver("cpu", None, Silent())(function, *arguments)
    workers = Accelerated(lambda: tiny_llama)
    there = Solver("cuda", workers, Silent())(function, *arguments)
    assert bits(alone) == bits(here) == bits(there)
    assert [(work.function, work.device) for work in workers.asked] == [
        (function, "cuda")
    ]
    assert type(there) is type(alone)


@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_chunks_that_workers_share_give_the_bits_of_one_process(
    tiny_llama: LanguageModel, n_workers: int
) -> None:
    function, arguments = cases()["fit_probes"]
    workers = Accelerated(lambda: tiny_llama)
    workers.n_workers = n_workers
    found = Solver("cuda", workers, Silent()).divided(function, *arguments)
    assert bits(found) == bits(function(*arguments, device="cpu", progress=Silent()))
    blocks = [work for work in workers.asked if work.function is search_chunks]
    assert len(blocks) == min(
        2 * n_workers, 3
    )  # two places of three layers are three chunks


class _Full(Accelerated):
    """Workers whose memory does not suffice."""

    def map(self, shards: Sequence[Any], progress: Any) -> list[Any]:
        raise MemoryRanOut("CUDA out of memory")


def test_memory_that_does_not_suffice_is_one_line(tiny_llama: LanguageModel) -> None:
    function, arguments = cases()["fit_probes"]
    with pytest.raises(
        UserError, match=r"^Memory of a worker does not suffice for probes; .*--limit"
    ) as found:
        Solver("cuda", _Full(lambda: tiny_llama), Silent())(
            function, *arguments, title="probes"
        )
    assert "\n" not in str(found.value)
