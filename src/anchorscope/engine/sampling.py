"""Tokens drawn at random: temperature, then the nucleus (top-p), then one number per prompt and step.

The number hangs on the prompt's own seed and on the step, never on the batch: whatever runs beside a prompt, the same
seed gives the same answer, up to the rounding of its logits. The token is where the cumulated probabilities pass that
number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from numpy import ndarray
from torch import Tensor

from anchorscope.stats.streams import mixed, uniform


@dataclass(frozen=True)
class Sampling:
    """How the tokens of answers are drawn."""

    seeds: UInt64[ndarray, " prompt"]
    """A random number per prompt, which all of its draws hang on; a prompt that is sampled twice needs two."""
    temperature: float = 1.0
    """Logits are divided by it."""
    top_p: float = 1.0
    """Tokens are drawn from the likeliest ones that together have at least this probability."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf or not 0 < self.top_p <= 1:
            raise ValueError(
                f"temperature {self.temperature}, top-p {self.top_p}; allowed: a temperature above 0, top-p above 0 "
                f"and up to 1"
            )

    def take(self, prompts: Sequence[int]) -> "Sampling":
        """For some of the prompts, in this order."""
        return Sampling(self.seeds[list(prompts)], self.temperature, self.top_p)

    def draws(self, prompts: Sequence[int], step: int) -> Float[ndarray, " chosen"]:
        """The numbers in [0, 1) that choose the token of a step, counted from 0, for some of the prompts."""
        return step_numbers(self.seeds[list(prompts)], np.uint64(step))


def step_numbers(seeds: UInt64[ndarray, " row"], steps: UInt64[ndarray, " row"] | np.uint64) -> Float[ndarray, " row"]:
    """The numbers in [0, 1) that choose tokens, by seed and step, counted from 0."""
    return uniform(mixed(seeds, steps + np.uint64(1)))


def distribution(logits: Float[Tensor, "row vocab"], temperature: float, top_p: float) -> Float[Tensor, "row vocab"]:
    """What is drawn from: probabilities after temperature and top-p, float32.

    A token is left out if it and all that are less likely have at most 1 − `top_p` together; never the likeliest.
    """
    # Less the highest first: however low the temperature, that one stays a number.
    below = logits - logits.amax(dim=-1, keepdim=True)
    probabilities = torch.softmax(below / max(temperature, torch.finfo(below.dtype).tiny), dim=-1)
    if top_p == 1:
        return probabilities
    ordered, ids = probabilities.sort(dim=-1, stable=True)  # least likely first: small sums keep their digits
    out = ordered.cumsum(dim=-1, dtype=torch.double) <= 1 - top_p
    out[:, -1] = False
    kept = torch.zeros_like(probabilities).scatter_(1, ids, ordered.masked_fill_(out, 0))
    return kept / kept.sum(dim=-1, keepdim=True)


def draw_tokens(
    logits: Float[Tensor, "row vocab"], sampling: Sampling, draws: Float[Tensor, " row"]
) -> Int[Tensor, " row"]:
    """The token of each row at which the cumulated probabilities, in float64, pass the row's number."""
    passed = distribution(logits, sampling.temperature, sampling.top_p).cumsum(dim=-1, dtype=torch.double)
    wanted = draws.to(passed)[:, None] * passed[:, -1:]
    # Right of all that do not exceed it: a token of probability 0 adds nothing, and is never chosen.
    return torch.searchsorted(passed, wanted, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
