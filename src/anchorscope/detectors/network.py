"""A small network on the state of the best layer: two hidden layers, as SAPLMA's idea is; all training sets at once."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.fitted_states import Network
from anchorscope.detectors.gradient import descend
from anchorscope.detectors.single import DetectorFit
from anchorscope.detectors.training import FITS, INNER_FOLDS, Training

SIZES = ((16, 8), (64, 16))
"""Hidden units of the two layers, to choose from."""
_STEPS, _RATE, _DECAY = 60, 0.01, 0.02
_AT_ONCE = 2**20  # numbers of a hidden layer that are worked on together: what a CPU's cache holds,
_AT_ONCE_ELSEWHERE = 2**27  # and what keeps a GPU busy


def fit_network(data: TrainingData) -> DetectorFit:
    """The network; the inner folds choose its size."""
    scale = data.states_at_best.square().mean((1, 2), keepdim=True).sqrt()
    states = data.states_at_best / scale
    found = [_train(data, states, size) for size in SIZES]
    scores = torch.stack([data.training.assemble(_outputs(parts, states)) for parts in found])
    chosen = data.training.inner_auc(scores).argmax(0)

    def build(number: int) -> Fitted:
        parts = [part[number, INNER_FOLDS].double().cpu() for part in found[int(chosen[number])]]
        place = int(data.best[number])
        first = parts[0].T / float(scale[number])
        weight = first @ data.directions.weight[place]
        bias = parts[1] + first @ data.directions.offset[place]
        weights = (weight, parts[2].T, parts[4].T)
        return Network(
            (CLEAN, data.site, data.layers[place]),
            tuple(one.float().contiguous() for one in weights),
            tuple(one.float() for one in (bias, parts[3], parts[5])),
        )

    return DetectorFit(scores[chosen, torch.arange(len(chosen))], build)


def _outputs(parts: list[Tensor], states: Float[Tensor, "set item direction"]) -> Float[Tensor, "set fit item"]:
    values = torch.relu(states[:, None] @ parts[0] + parts[1][:, :, None])
    values = torch.relu(values @ parts[2] + parts[3][:, :, None])
    return (values @ parts[4] + parts[5][:, :, None])[..., 0]


def _train(data: TrainingData, states: Tensor, size: tuple[int, int]) -> list[Tensor]:
    """Weights and biases of the three layers, [set, fit, in, out] and [set, fit, out]; some sets at a time."""
    at_once = _AT_ONCE if data.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    step = max(1, at_once // (FITS * states.shape[1] * size[0]))
    parts = [
        _train_some(data, data.training.take(slice(first, first + step)), states[first : first + step], size)
        for first in range(0, len(states), step)
    ]
    return [torch.cat(one) for one in zip(*parts, strict=True)]


def _train_some(data: TrainingData, training: Training, states: Tensor, size: tuple[int, int]) -> list[Tensor]:
    weights = training.fitted_on(data.device)
    share = weights / weights.sum(-1, keepdim=True)
    targets = training.targets(data.device)[:, None].expand(-1, weights.shape[1], -1)
    widths = (states.shape[2], *size, 1)
    generator = torch.Generator().manual_seed(0)
    begin: list[Tensor] = []
    for before, after in pairwise(widths):
        drawn = torch.randn(before, after, generator=generator) * (2 / before) ** 0.5
        begin += [
            drawn.to(data.device).expand(*weights.shape[:2], -1, -1),
            torch.zeros(*weights.shape[:2], after, device=data.device),
        ]

    def loss(parts: list[Tensor]) -> Tensor:
        own = binary_cross_entropy_with_logits(_outputs(parts, states), targets, reduction="none")
        ridge = sum(part.square().sum() for part in parts[::2])
        return (own * share).sum() + _DECAY * ridge / 2

    return descend(begin, loss, _STEPS, [_RATE] * len(begin))
