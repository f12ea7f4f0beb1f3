"""Sampled answers: drawn from transformers' own distributions, by numbers that hang on nothing but seed and step."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from transformers import TemperatureLogitsWarper, TopPLogitsWarper

from anchorscope.engine.decode import (
    Decoded,
    Sampling,
    decode,
    distribution,
    draw_tokens,
    step_numbers,
)
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.models.language_model import LanguageModel
from anchorscope.stats.streams import unnamed
from engine_cases import shared_prefix

ROOM = 9
N = 6


def is_end(token: int, so_far: Sequence[int]) -> bool:
    return token % 6 == 2


def sample(
    lm: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling | None,
    batches: list[list[int]] | None = None,
    shared: bool = True,
) -> list[Decoded]:
    prefix = shared_prefix(lm) if shared else NO_PREFIX
    every = batches or [list(range(len(prompts)))]
    return decode(lm, prompts, prefix, every, ROOM, is_end, sampling=sampling)


def warped(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """Probabilities as transformers' generate draws from them."""
    ids = torch.zeros(len(logits), 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(temperature)(ids, logits)
    return torch.softmax(TopPLogitsWarper(top_p)(ids, scores), dim=-1)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_probabilities_are_those_of_transformers_warpers(
    temperature: float, top_p: float
) -> None:
    logits = 3 * torch.randn(20, 300, generator=torch.Generator().manual_seed(1))
    found, wanted = (
        distribution(logits, temperature, top_p),
        warped(logits, temperature, top_p),
    )
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert torch.equal(found > 0, wanted > 0)  # the very same tokens are left out
    if top_p < 0.9:
        assert (found == 0).sum() > 1000


@pytest.mark.parametrize("top_p", [0.8, 1.0])
def test_a_token_is_drawn_where_the_cumulated_probabilities_pass_the_number(
    top_p: float,
) -> None:
    logits = torch.tensor([[0.5, 0.0, 0.25, 0.25]]).log().expand(8, 4)
    draws = torch.tensor(
        [0.0, 0.3, 0.499, 0.501, 0.74, 0.76, 0.999, 1 - 2**-53], dtype=torch.double
    )
    found = draw_tokens(logits, Sampling(unnamed(0, "test", 8), 1.0, top_p), draws)
    assert found.tolist() == [
        0,
        0,
        0,
        2,
        2,
        3,
        3,
        3,
    ]  # never the second, which has no probability


def test_numbers_are_uniform_and_neighbours_do_not_hang_together() -> None:
    n = 100_000  # so many that a bias of 1 % of a number's range is seen, at one false alarm in 10,000
    for seeds in (
        unnamed(0, "test", n),
        np.arange(n, dtype=np.uint64),
    ):  # seeds that follow each other serve as well
        sampling = Sampling(seeds)
        steps = np.stack(
            [step_numbers(sampling.seeds, np.uint64(step)) for step in range(4)]
        )
        assert steps.min() >= 0
        assert steps.max() < 1
        assert all(kstest(step, "uniform").pvalue > 1e-4 for step in steps)
        assert kstest(np.clip(steps[0] * 1.01, 0, 1), "uniform").pvalue < 1e-4
        apart = np.corrcoef(
            np.concatenate([steps, np.roll(steps, 1, axis=1)])
        ) - np.eye(8)
        assert np.abs(apart).max() < 4.5 / np.sqrt(n)


def test_a_low_temperature_is_greedy_decoding(
    tiny: LanguageModel, prompts: list[tuple[int, ...]]
) -> None:
    greedy = sample(tiny, prompts, None)
    for temperature in (1e-5, 1e-300):
        found = sample(tiny, prompts, Sampling(unnamed(0, "test", N), temperature))
        assert [(one.ids, one.finished) for one in found] == [
            (one.ids, one.finished) for one in greedy
        ]
        for mine, other in zip(found, greedy, strict=True):
            assert mine.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_what_runs_beside_a_prompt_does_not_matter(
    tiny: LanguageModel, prompts: list[tuple[int, ...]]
) -> None:
    twice = [*prompts, *prompts]
    sampling = Sampling(unnamed(1, "test", 2 * N), 1.2, 0.95)
    whole = sample(tiny, twice, sampling)
    ways = (
        (True, [[3], [11, 0, 5, 8], [4, 10, 2, 6, 1, 7, 9]]),
        (False, [[3, *range(4, 12)], [2, 1, 0]]),
    )
    for shared, batches in ways:
        apart = sample(tiny, twice, sampling, batches, shared)
        assert [one.ids for one in apart] == [one.ids for one in whole]
        for mine, other in zip(apart, whole, strict=True):
            assert mine.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    assert [one.ids for one in whole[:N]] != [
        one.ids for one in whole[N:]
    ]  # another seed, another answer
    again = sample(tiny, prompts[::-1], sampling.take(range(N)[::-1]))
    assert [one.ids for one in again[::-1]] == [one.ids for one in whole[:N]]


def test_log_probabilities_are_the_models_own(
    tiny_llama: LanguageModel, prompts: list[tuple[int, ...]]
) -> None:
    found = sample(tiny_llama, prompts, Sampling(unnamed(2, "test", N), 3.0, 0.9))
    assert sum(len(one.ids) for one in found) > 8
    for prompt, one in zip(prompts, found, strict=True):
        with torch.no_grad():
            logits = tiny_llama.model(
                torch.tensor([prompt + one.ids]), use_cache=False
            ).logits[0]
        wanted = torch.log_softmax(logits.double(), dim=-1)[len(prompt) - 1 : -1]
        wanted = wanted.gather(1, torch.tensor(one.ids, dtype=torch.long)[:, None])[
            :, 0
        ]
        torch.testing.assert_close(
            torch.tensor(one.log_probs).double(), wanted, rtol=1e-5, atol=1e-5
        )
