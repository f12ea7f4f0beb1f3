"""The coordinates in which probes are fitted, and what is known about the states in them before any probe is.

Features are brought to one scale before float32 sees them: outlier features (values of hundreds with a spread of one)
would cost it its digits. What each training set standardises by its own mean and deviation is folded into its columns;
the means stand as further rows below the items, so that one matrix product serves both. All problems (layers, sites,
positions) of a chunk share every call, [problem, …].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probes.items import Frame, HeldItems, Items, StreamedItems, in_parts

DIRECTIONS = 64
"""Leading directions of the states that the solver knows; more cost more than they save."""
_POWER_STEPS = 2  # of the subspace iteration that finds them; a third makes the solver hardly faster
_SHIFT_ITEMS = 7  # their median lies among the bulk of the items even where a few are wild


@dataclass(frozen=True)
class Coordinates:
    """The states of several problems, ready for any columns."""

    items: Items
    n_items: int
    frame: Frame
    mean: Tensor
    """Of each scaling, in the frame, float64 [problem, scaling, d_model]."""
    deviation: Tensor
    """Likewise."""
    directions: Tensor
    """Orthonormal leading directions of the standardised states, [problem, direction, d_model]."""
    variances: Tensor
    """Along them, [problem, direction]."""
    rest: Tensor
    """Mean variance along all others, [problem]."""

    def to_raw(self, weight: Tensor, intercept: Tensor, scaling: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and biases that act on the raw states, of columns in the coordinates of their scaling."""
        scaled = weight.double() / self.deviation[:, scaling]
        raw = scaled / self.frame.spread
        bias = intercept.double() - (self.mean[:, scaling] * scaled).sum(-1) - (self.frame.center * raw).sum(-1)
        return raw.float(), bias.float()


def prepare(states: Tensor, scaled_on: Tensor, items_at_once: int | None = None) -> Coordinates:
    """Coordinates for states [problem, item, d_model] and the training sets [scaling, item] that standardise them.

    The device is that of `scaled_on`. With `items_at_once` the states stay where they are, and every product brings so
    many items to the device at a time.
    """
    shift = _among_the_bulk(states, scaled_on.device)
    counts = scaled_on.double().sum(1)
    mean, square = _moments(states, scaled_on.double() / counts[:, None], shift)
    variance = square - mean.square()
    # What double precision cannot tell from zero is a feature that does not vary here, and is left as it is.
    varies = variance > 1e-12 * square
    deviation = variance.clamp(min=0).sqrt()
    # Per feature the frame is that of the scaling where it varies least: an item that is wild and outside that
    # training set must not cost those inside it their digits.
    least = torch.where(varies, deviation, torch.inf).argmin(1, keepdim=True)
    center = mean.gather(1, least)
    spread = torch.where(varies.gather(1, least), deviation.gather(1, least), 1.0)
    frame = Frame(shift + center, spread)
    mean_here = (mean - center) / spread
    deviation_here = torch.where(varies, deviation / spread, 1.0)
    items: Items
    if items_at_once is None:
        items = HeldItems(torch.cat([frame.of(states), mean_here.float()], dim=1))
    else:
        items = StreamedItems(states, frame, mean_here.float(), items_at_once)

    typical = deviation_here.mean(1, keepdim=True)
    weight = counts[:, None] / counts.sum()  # of each scaling among all rows, an item counting once per scaling
    pooled = (weight * square).sum(1) - (weight * mean).sum(1).square()
    total = (pooled / (typical * spread)[:, 0].square()).sum(-1)
    share = torch.nn.functional.pad(scaled_on.float().sum(0) / counts.sum().float(), (0, len(scaled_on)))
    directions, variances = _leading(items, share, (1 / typical).float())
    rest = (total.float() - variances.sum(-1)).clamp(min=0) / max(1, states.shape[2] - directions.shape[1])
    return Coordinates(items, states.shape[1], frame, mean_here, deviation_here, directions, variances, rest)


def _among_the_bulk(states: Tensor, device: torch.device) -> Tensor:
    places = torch.linspace(0, states.shape[1] - 1, min(_SHIFT_ITEMS, states.shape[1])).round().long()
    return states[:, places.to(states.device)].to(device).double().median(1, keepdim=True).values


def _moments(states: Tensor, share: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Means and mean squares of the shifted states under each scaling, float64 [problem, scaling, d_model]."""
    mean = torch.zeros(len(states), len(share), states.shape[2], dtype=torch.double, device=share.device)
    square = torch.zeros_like(mean)
    start = 0
    for part in in_parts(states, share.device):
        shifted = part.to(share.device).double() - shift
        here = share[:, start : start + part.shape[1]]
        mean += here @ shifted
        square += here @ shifted.square_()
        start += part.shape[1]
    return mean, square


def _leading(items: Items, share: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Leading directions of the states, scaled and weighted per row, and their variances, by subspace iteration."""
    n_problems, _, width = scale.shape
    count = min(DIRECTIONS, int((share > 0).sum()), width)
    # Drawn on the CPU, so that every device starts from the same numbers.
    drawn = torch.randn(count, width, generator=torch.Generator().manual_seed(0)).to(scale.device)
    directions = drawn.expand(n_problems, -1, -1)

    def spread_out(along: Tensor) -> Tensor:
        found = items.times(along * scale)
        return found - (found * share).sum(-1, keepdim=True)

    for _ in range(_POWER_STEPS):
        directions = _orthonormal(items.gathered(spread_out(directions) * share) * scale)
    along = spread_out(directions).double()
    variances, turn = torch.linalg.eigh((along * share) @ along.transpose(1, 2))
    return turn.transpose(1, 2).float() @ directions, variances.clamp(min=0).float()


def _orthonormal(rows: Tensor) -> Tensor:
    """An orthonormal basis of what the rows [problem, row, d_model] span; rows that add nothing become zero."""
    exact = rows.double()
    lengths, turn = torch.linalg.eigh(exact @ exact.transpose(1, 2))
    real = lengths > 1e-12 * lengths.amax(-1, keepdim=True)
    scale = torch.where(real, lengths.clamp(min=1e-300).rsqrt(), 0.0)
    return ((turn * scale[:, None, :]).transpose(1, 2) @ exact).float()
