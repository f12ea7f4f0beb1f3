"""How likely supplied answers are: from the pass that keeps the clean states, as the model itself has it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.engine import forward
from anchorscope.engine.decode import decode
from anchorscope.engine.forward import NO_PREFIX, compute_prefix
from anchorscope.engine.sequences import TokenSequence
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from engine_cases import SHARED, assert_same, clean_states, make_items, run, shared_prefix

LENGTHS_OF_ANSWERS = (3, 1, 5, 0, 9)


@pytest.fixture(scope="module")
def answered() -> list[TokenSequence]:
    """Answers of several lengths; one is empty, one begins right after the shared tokens."""
    items = make_items()
    items[0] = replace(items[0], ids=items[0].ids, answer_start=len(SHARED))
    others = zip(items[1:], LENGTHS_OF_ANSWERS[1:], strict=True)
    return [items[0], *(replace(one, answer_start=len(one.ids) - n) for one, n in others)]


def by_transformers(lm: LanguageModel, items: Sequence[TokenSequence]) -> list[np.ndarray]:
    """Log-softmax of the model's own forward pass, one item at a time."""
    found = []
    for item in items:
        with torch.no_grad():
            told = torch.log_softmax(lm.model(torch.tensor([item.ids])).logits[0].float(), -1)
        places = range(item.answer_start, len(item.ids))
        found.append(np.array([float(told[place - 1, item.ids[place]]) for place in places]))
    return found


def assert_close(found: Sequence[Sequence[float]], wanted: Sequence[np.ndarray]) -> None:
    assert [len(one) for one in found] == [len(one) for one in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_log_probabilities_are_those_of_the_model(tiny: LanguageModel, answered: list[TokenSequence]) -> None:
    wanted = by_transformers(tiny, answered)
    assert min(one.std() for one in wanted if len(one) > 2) > 0.1  # a law over numbers that differ
    states = run(tiny, answered, NO_PREFIX).permute(1, 2, 3, 0, 4)
    for shared, budget in ((SHARED, 40), (SHARED, 10_000), (SHARED[:-1], 40), ((), 10_000)):
        found = clean_states(tiny, answered, compute_prefix(tiny, shared), budget)
        assert_close(found.log_probs, wanted)
        assert_same(found.states, states)


@pytest.mark.parametrize("shared", [True, False])
def test_generated_answers_are_as_likely_when_they_are_supplied(tiny: LanguageModel, shared: bool) -> None:
    prompts = [item.ids[:-4] for item in make_items()]
    prefix = shared_prefix(tiny) if shared else NO_PREFIX
    spoken = decode(tiny, prompts, prefix, [list(range(len(prompts)))], 7, lambda token, so_far: token % 6 == 2)
    supplied = [
        TokenSequence((*prompt, *one.ids), len(prompt), (len(prompt) - 1,))
        for prompt, one in zip(prompts, spoken, strict=True)
    ]
    assert any(one.ids for one in spoken)
    found = clean_states(tiny, supplied, prefix, 60)
    assert_close(found.log_probs, [np.array(one.log_probs) for one in spoken])


def test_the_head_runs_on_some_tokens_at_a_time(
    tiny_llama: LanguageModel, answered: list[TokenSequence], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = clean_states(tiny_llama, answered, NO_PREFIX).log_probs
    sizes: list[int] = []
    logits = LanguageModel.logits
    monkeypatch.setattr(forward, "LOGITS_AT_ONCE", 2 * 260)
    monkeypatch.setattr(LanguageModel, "logits", lambda lm, part: sizes.append(len(part)) or logits(lm, part))
    found = clean_states(tiny_llama, answered, NO_PREFIX).log_probs
    assert max(sizes) == 2
    assert sum(sizes) == sum(len(one) for one in wanted)
    assert_close(found, [np.array(one) for one in wanted])


def test_a_text_whose_first_token_is_the_answer_is_refused(tiny_llama: LanguageModel) -> None:
    item = TokenSequence((256, 5, 6), answer_start=0, read_at=(2,))
    with pytest.raises(ValueError, match="answers from 0"):
        clean_states(tiny_llama, [item], NO_PREFIX)


def test_logits_that_are_no_numbers_are_told(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = LanguageModel.logits
    monkeypatch.setattr(LanguageModel, "logits", lambda lm, part: logits(lm, part) * float("inf"))
    with pytest.raises(UserError, match="contain NaN or infinity"):
        clean_states(tiny_llama, make_items(), NO_PREFIX)
