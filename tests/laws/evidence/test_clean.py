"""The clean pass: the engine's own states, and how likely the model itself finds the answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.answers.generate import Answer
from anchorscope.engine.capture import capture
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import CleanStates, run_clean, with_log_probs
from anchorscope.execute.executor import LocalExecutor
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from made_items import make_item, planner_of

N, POSITIONS = 12, ("final", "answer_before")


@pytest.fixture(scope="module")
def items() -> list[Item]:
    rng = np.random.default_rng(0)
    found = []
    for index in range(N):
        ids = (7, 8, 9, 10, *rng.integers(0, 256, int(rng.integers(8, 16))).tolist())
        found.append(make_item(ids, len(ids) - 2 - index % 3, (5, 6), 4, name=f"item-{index}"))
    return found


@pytest.fixture(scope="module")
def clean(tiny_llama: LanguageModel, items: list[Item]) -> CleanStates:
    executor = LocalExecutor(lambda: tiny_llama)
    planner = planner_of(tiny_llama, 60)
    return run_clean(executor, planner, items, POSITIONS, Silent(), compiled=False, edges="all", site=0).clean


def test_states_are_the_engines_at_every_position_and_site(
    tiny_llama: LanguageModel, items: list[Item], clean: CleanStates
) -> None:
    sequences = [item.sequence(POSITIONS) for item in items]
    found: dict[int, torch.Tensor] = {}
    capture(
        tiny_llama,
        sequences,
        compute_prefix(tiny_llama, (7, 8, 9, 10)),
        [range(N)],
        lambda _, batch, states: found.update(zip(batch, states.clone(), strict=True)),
    )
    wanted = torch.stack([found[index] for index in range(N)], dim=3)
    assert clean.states.shape == (2, len(SITES), tiny_llama.n_layers, N, tiny_llama.d_model)
    torch.testing.assert_close(clean.states, wanted, rtol=1e-4, atol=1e-4)


def test_log_probs_are_the_models_own_of_every_token_of_the_answer(
    tiny_llama: LanguageModel, items: list[Item], clean: CleanStates
) -> None:
    for item, found in zip(items, clean.log_probs, strict=True):
        ids, start = item.located.input_ids, item.located.answer_start
        with torch.inference_mode():
            logits = tiny_llama.model(torch.tensor([ids])).logits[0]
        known = torch.log_softmax(logits.float(), dim=-1)
        wanted = [float(known[place - 1, ids[place]]) for place in range(start, len(ids))]
        assert found == pytest.approx(wanted, abs=1e-3)


def test_answers_keep_their_own_log_probs_and_others_take_those_of_the_pass() -> None:
    own = Answer("a", (1,), (-0.5,), "answered")
    given, empty = replace(own, log_probs=None), replace(own, log_probs=None, status="empty")
    found = with_log_probs([own, given, empty], [(-9.0,), (-1.5,), ()])
    assert [one.log_probs for one in found] == [(-0.5,), (-1.5,), None]
