"""Memory that runs out: the whole pass is planned with half the tokens and run anew, on whichever worker it happened;
its numbers are those of a pass that was planned so from the start."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_states
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import SaliencyPass
from anchorscope.probes.crossfit import Scorer
from anchorscope.progress import Silent
from made_items import planner_of
from many_workers import ManyWorkers, with_little_memory
from pass_cases import CASES, PREFIX, Case, bits, short_sequences

N_LAYERS = 4
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def largest(work: Any) -> int:
    """Tokens of the largest batch that could be divided."""
    lengths = work.lengths(N_LAYERS)
    return max(
        max(lengths[item] for item in batch) * len(batch)
        for batch in work.batches
        if len(batch) > 1
    )


def run_out_after(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Lets memory run out at the very end of the so-manieth batch, counted from 0; how many items each batch had."""
    seen: list[int] = []

    def advance(self: Silent, n: int) -> None:
        seen.append(n)
        if len(seen) == number + 1:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(Silent, "advance", advance)
    return seen


@every_case
def test_whichever_batch_ran_out_the_bits_are_those_of_a_pass_with_half_the_tokens(
    sensitive: LanguageModel, case: Case
) -> None:
    """At the last batch that can be divided, when all before it are done; for one kind of pass at the first one too."""
    work = case.plan(sensitive, case.tokens)
    half = largest(work) // 2
    wanted = case.bits(LocalExecutor(lambda: sensitive), case.plan(sensitive, half))
    divisible = [index for index, batch in enumerate(work.batches) if len(batch) > 1]
    assert len(divisible) > 1
    again = work.replanned(half, N_LAYERS)
    assert len(again.batches) > len(work.batches)
    for divides in (True, False):
        for number in divisible if case is CASES["states"] else divisible[-1:]:
            many, told = ManyWorkers(sensitive), []
            with pytest.MonkeyPatch.context() as patch:
                seen = run_out_after(patch, number)
                found = case.bits(
                    many if divides else LocalExecutor(lambda: sensitive, told.append),
                    work,
                )
            assert found == wanted
            assert (many.told or told) == (
                [] if isinstance(work, SaliencyPass) else [half]
            )
            assert seen[: number + 1] == [
                len(batch) for batch in work.batches[: number + 1]
            ]
            assert seen[number + 1 :] == [
                len(batch) for batch in again.batches
            ]  # all of them, from the beginning


@pytest.mark.parametrize("at", [1, 2, 3, 7])
def test_memory_that_runs_out_inside_a_batch_leaves_nothing_of_it_behind(
    sensitive: LanguageModel, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before, within or after the first variant of a batch, when some of its items have been received."""
    case = CASES["states"]
    work = case.plan(sensitive, case.tokens)
    wanted = case.bits(
        LocalExecutor(lambda: sensitive), case.plan(sensitive, largest(work) // 2)
    )
    score, calls, told = Scorer.score, [], []

    def short_of_memory(
        self: Scorer, items: list[int], states: torch.Tensor
    ) -> torch.Tensor:
        calls.append(len(items))
        if len(calls) == at:
            raise torch.OutOfMemoryError
        return score(self, items, states)

    monkeypatch.setattr(Scorer, "score", short_of_memory)
    assert case.bits(LocalExecutor(lambda: sensitive, told.append), work) == wanted
    assert told == [largest(work) // 2]
    assert calls[at] < calls[0]


def test_tokens_are_halved_until_they_fit_and_nothing_larger_is_tried_again(
    sensitive: LanguageModel,
) -> None:
    small, seen = with_little_memory(sensitive, 30)
    work = replace(
        planner_of(sensitive, 160).states("clean", short_sequences(), PREFIX),
        keep=(((0, 2),),),
    )
    told: list[int] = []
    many = ManyWorkers(small)
    for executor, heard in (
        (LocalExecutor(lambda: small, told.append), told),
        (many, many.told),
    ):
        seen.clear()
        found = run_states(executor, work, Silent())
        assert len(heard) > 1
        assert heard == sorted(set(heard), reverse=True)
        assert heard[-1] <= 30 < max(seen)
        again = planner_of(sensitive, heard[-1]).states(
            "clean", short_sequences(), PREFIX
        )
        whole = run_states(
            LocalExecutor(lambda: sensitive), replace(again, keep=work.keep), Silent()
        )
        assert bits(found) == bits(whole)
        last = max(index for index, tokens in enumerate(seen) if tokens > 30)
        assert len(
            [tokens for tokens in seen[last + 1 :] if tokens > len(PREFIX)]
        ) == len(again.batches)


def test_a_sequence_that_does_not_fit_alone_is_refused(
    sensitive: LanguageModel,
) -> None:
    small, _ = with_little_memory(sensitive, 6)
    work = planner_of(sensitive, 40).states("clean", short_sequences(), PREFIX)
    for executor in (ManyWorkers(small), LocalExecutor(lambda: small)):
        with pytest.raises(
            UserError,
            match=r"Memory does not suffice for a single item of [78] tokens; choose a smal",
        ):
            run_states(executor, work, Silent())
