"""When memory runs out: the pass is planned again with half the tokens, and nothing changes but the batches."""

from dataclasses import replace

import pytest
import torch

from anchorscope.engine.sequences import TokenSequence
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_states
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from engine_cases import SHARED, assert_same, run, shared_prefix
from made_items import planner_of
from many_workers import with_little_memory

ERRORS = {
    "GPU": lambda: torch.OutOfMemoryError("CUDA out of memory."),
    "host": lambda: MemoryError(),
    "torch on the host": lambda: RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"
    ),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_states_are_equal_with_little_memory(
    tiny_llama: LanguageModel, items: list[TokenSequence], kind: str
) -> None:
    lowered: list[int] = []
    small, _ = with_little_memory(tiny_llama, 60, ERRORS[kind])
    work = replace(
        planner_of(tiny_llama, 10_000).states("clean", items, SHARED), keep=(((8, 2),),)
    )
    (part,) = run_states(
        LocalExecutor(lambda: small, lowered.append), work, Silent()
    ).variants
    assert part.states is not None
    assert_same(
        part.states[0],
        run(tiny_llama, items, shared_prefix(tiny_llama))[:, 8, 2].transpose(0, 1),
    )
    assert 0 < lowered[-1] < 100


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    broken, _ = with_little_memory(
        tiny_llama, 0, lambda: RuntimeError("shapes do not fit")
    )
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run_states(
            LocalExecutor(lambda: broken),
            planner_of(tiny_llama, 1000).states("clean", items, ()),
            Silent(),
        )
