"""When memory runs out: the batch is halved, the work goes on, and nothing changes but the batches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.engine.batching import Budget, plan_batches, run_in_batches
from anchorscope.engine.decode import decode
from anchorscope.engine.sequences import TokenSequence
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from engine_cases import ERRORS, assert_same, clean_states, no_prefix, run, shared_prefix, with_little_memory


@pytest.mark.parametrize("kind", ERRORS)
def test_states_are_the_same_with_little_memory(
    tiny_llama: LanguageModel, items: list[TokenSequence], kind: str
) -> None:
    told: list[int] = []
    budget = Budget(10_000, told.append)
    small = with_little_memory(tiny_llama, 60, ERRORS[kind])
    states = clean_states(small, items, shared_prefix(small), budget).states
    assert_same(states, run(tiny_llama, items, shared_prefix(tiny_llama)).permute(1, 2, 3, 0, 4))
    assert told  # and the lower budget is kept for what follows
    assert budget.tokens == told[-1] <= 2 * max(len(item.ids) for item in items)


def test_answers_are_the_same_with_little_memory(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    prompts = [item.ids for item in items]

    def answers(lm: LanguageModel, budget: Budget | None) -> list[tuple[int, ...]]:
        batches = [range(len(prompts))]
        found = decode(lm, prompts, no_prefix(), batches, 6, lambda token, so_far: token == 257, budget=budget)
        return [one.ids for one in found]

    budget = Budget(10_000)
    assert answers(with_little_memory(tiny_llama, 35, ERRORS["GPU"]), budget) == answers(tiny_llama, None)
    assert budget.tokens < 100


def test_an_item_that_does_not_fit_alone_is_refused(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    small = with_little_memory(tiny_llama, 0, ERRORS["GPU"])
    with pytest.raises(UserError, match="a single item of 31 tokens"):
        clean_states(small, items, no_prefix(), Budget(10_000))


def test_other_errors_are_not_taken_for_a_lack_of_memory(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    broken = with_little_memory(tiny_llama, 0, lambda: RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        clean_states(broken, items, no_prefix(), Budget(10_000))


@settings(max_examples=20)  # every lack of memory sweeps the garbage, which takes time
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(50, 300), st.integers(50, 4000))
def test_every_item_runs_once_whatever_fits(lengths: list[int], room: int, budget_tokens: int) -> None:
    done: list[int] = []

    def fit(batch: list[int]) -> None:
        if max(lengths[index] for index in batch) * len(batch) > room:
            raise torch.OutOfMemoryError
        done.extend(batch)

    budget = Budget(budget_tokens)
    run_in_batches(plan_batches(lengths, budget_tokens), lambda: lengths, budget, fit)
    assert sorted(done) == list(range(len(lengths)))
    assert budget.tokens <= budget_tokens
