"""Adam for many small models at once: those that have no closed form and that the probes' solver does not know."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_DECAYS = (0.9, 0.999)
_TINY = 1e-8


Loss = Callable[[list[Tensor]], Tensor]
"""The sum of the models' losses, from their parameters."""


def descend(parameters: Sequence[Tensor], loss: Loss, steps: int, rates: Sequence[float | Tensor]) -> list[Tensor]:
    """Parameters after so many Adam steps down a loss, which is the sum of the models' own; the rate falls to zero.

    Models share no parameter, so that each goes its own way: what stands beside it changes nothing. A rate that hangs
    on the parameters has to be each model's own for that (`own_rates`).
    """
    current = [one.detach().clone() for one in parameters]
    first, second = ([torch.zeros_like(one) for one in current] for _ in range(2))
    for step in range(1, steps + 1):
        with torch.enable_grad():
            leaves = [one.requires_grad_() for one in current]
            gradients = torch.autograd.grad(loss(leaves), leaves)
        share = 1 - (step - 1) / steps
        with torch.no_grad():
            for place, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
                first[place].mul_(_DECAYS[0]).add_(gradient, alpha=1 - _DECAYS[0])
                second[place].mul_(_DECAYS[1]).addcmul_(gradient, gradient, value=1 - _DECAYS[1])
                mean = first[place] / (1 - _DECAYS[0] ** step)
                size = (second[place] / (1 - _DECAYS[1] ** step)).sqrt() + _TINY
                current[place] = (current[place] - rate * share * mean / size).detach()
    return current


def own_rates(weights: Tensor, share: float) -> Tensor:
    """A rate for every model: a share of the size of its weights, which are the last axis.

    Not of the size of all models' weights: some models have learned from the very items that judge another.
    """
    return share * weights.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-4)
