"""Standardised states as a design matrix, and its leading eigenvectors, which precondition every fit.

Features are brought to one scale in float64 first: outlier features (values of hundreds with a deviation of one) would
lose their digits in float32. That affine map, `FeatureScale`, is shared by all training sets of a problem; each one's
own mean and deviation is folded into the solver's columns, with the means as further rows below the items. All problems
(layers, sites, positions) of a chunk share every call, [problem, …].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor

RANK = 64
"""Leading eigenvectors of the states' covariance that the preconditioner holds; more cost more than they save."""
_POWER_ITERATIONS = 2  # of the subspace iteration that finds them; a third makes the solver hardly faster
# their median lies among the bulk of the items even where a few are wild
_SHIFT_ITEMS = 7
# numbers that are held in float64 at once: on a CPU what its cache holds,
_CPU_VALUES = 2**17
_DEVICE_VALUES = 2**25  # elsewhere enough to keep the device busy


@dataclass(frozen=True)
class FeatureScale:
    """An affine map per feature, (x − center) / scale, in float64."""

    center: Float64[Tensor, "problem 1 d_model"]
    scale: Float64[Tensor, "problem 1 d_model"]

    def apply(
        self, states: Shaped[Tensor, "problem item d_model"]
    ) -> Float[Tensor, "problem item d_model"]:
        """States after the map, float32, on its device; computed in float64."""
        device = self.center.device
        scaled = torch.empty(states.shape, device=device)
        start = 0
        for block in _item_blocks(states, device):
            exact = (block.to(device).double() - self.center).div_(self.scale)
            scaled[:, start : start + block.shape[1]] = exact
            start += block.shape[1]
        return scaled


class DesignMatrix:
    """X of several problems on the device: items as rows, then one row per scaling, its mean. Named as in SciPy."""

    def __init__(self, rows: Float[Tensor, "problem row d_model"]) -> None:
        self._rows = rows
        # A CPU multiplies few columns up to twice as fast if both operands lie in memory order; a GPU does not mind.
        transposed = rows.transpose(1, 2)
        self._transposed = (
            transposed.contiguous() if rows.device.type == "cpu" else transposed
        )

    def matmat(
        self, weight: Float[Tensor, "problem column d_model"]
    ) -> Float[Tensor, "problem column row"]:
        return torch.bmm(weight, self._transposed)

    def rmatmat(
        self, residual: Float[Tensor, "problem column row"]
    ) -> Float[Tensor, "problem column d_model"]:
        return torch.bmm(residual, self._rows)


@dataclass(frozen=True)
class Standardised:
    design: DesignMatrix
    n_items: int
    scale: FeatureScale
    mean: Float64[Tensor, "problem scaling d_model"]
    """Of each training set that is standardised on ("scaling"), after `scale`."""
    deviation: Float64[Tensor, "problem scaling d_model"]
    """Likewise; 1 where a feature does not vary."""
    eigenvectors: Float[Tensor, "problem rank d_model"]
    """Leading ones of the standardised states' covariance, orthonormal."""
    eigenvalues: Float[Tensor, "problem rank"]
    residual_variance: Float[Tensor, " problem"]
    """Mean variance along all other directions."""

    def to_raw(
        self,
        weight: Float[Tensor, "problem column d_model"],
        intercept: Float[Tensor, "problem column"],
        scaling: Int[Tensor, " column"],
    ) -> tuple[
        Float[Tensor, "problem column d_model"], Float[Tensor, "problem column"]
    ]:
        """Weights and biases that act on the raw states, of columns standardised by their scaling."""
        scaled = weight.double() / self.deviation[:, scaling]
        raw = scaled / self.scale.scale
        bias = (
            intercept.double()
            - (self.mean[:, scaling] * scaled).sum(-1)
            - (self.scale.center * raw).sum(-1)
        )
        return raw.float(), bias.float()


def standardise(
    states: Shaped[Tensor, "problem item d_model"],
    scaled_on: Bool[Tensor, "scaling item"],
    rank: int = RANK,
    iterations: int = _POWER_ITERATIONS,
    rescale: bool = True,
) -> Standardised:
    """Standardises states by each of the training sets `scaled_on`, on the device of `scaled_on`.

    `rank` leading eigenvectors are found. Without `rescale` only means are subtracted: principal directions keep their
    scales.
    """
    # Each feature's median over a few items: a shift that is near the bulk of the values.
    sample = (
        torch.linspace(0, states.shape[1] - 1, min(_SHIFT_ITEMS, states.shape[1]))
        .round()
        .long()
    )
    shift = (
        states[:, sample.to(states.device)]
        .to(scaled_on.device)
        .double()
        .median(1, keepdim=True)
        .values
    )
    counts = scaled_on.double().sum(1)
    mean, square = _shifted_moments(states, scaled_on.double() / counts[:, None], shift)
    variance = square - mean.square()
    # What double precision cannot tell from zero is a feature that does not vary here, and is left as it is.
    varies = variance > 1e-12 * square
    deviation = variance.clamp(min=0).sqrt() if rescale else torch.ones_like(variance)
    # Per feature the scale is that of the training set where it varies least: an item that is wild and outside that
    # training set must not cost those inside it their digits.
    least = torch.where(varies, deviation, torch.inf).argmin(1, keepdim=True)
    center = mean.gather(1, least)
    unit = torch.where(varies.gather(1, least), deviation.gather(1, least), 1.0)
    scale = FeatureScale(shift + center, unit)
    scaled_mean = (mean - center) / unit
    scaled_deviation = torch.where(varies, deviation / unit, 1.0)
    design = DesignMatrix(torch.cat([scale.apply(states), scaled_mean.float()], dim=1))

    typical = scaled_deviation.mean(1, keepdim=True)
    # of each training set among all, an item counting once in each
    weight = counts[:, None] / counts.sum()
    pooled_variance = (weight * square).sum(1) - (weight * mean).sum(1).square()
    trace = (pooled_variance / (typical * unit)[:, 0].square()).sum(-1)
    row_weight = torch.nn.functional.pad(
        scaled_on.float().sum(0) / counts.sum().float(), (0, len(scaled_on))
    )
    eigenvectors, eigenvalues = _subspace_iteration(
        design, row_weight, (1 / typical).float(), rank, iterations
    )
    residual = (trace.float() - eigenvalues.sum(-1)).clamp(min=0) / max(
        1, states.shape[2] - eigenvectors.shape[1]
    )
    return Standardised(
        design,
        states.shape[1],
        scale,
        scaled_mean,
        scaled_deviation,
        eigenvectors,
        eigenvalues,
        residual,
    )


def _item_blocks(states: Tensor, device: torch.device) -> Iterator[Tensor]:
    values = _CPU_VALUES if device.type == "cpu" else _DEVICE_VALUES
    yield from states.split(max(1, values // (len(states) * states.shape[2])), dim=1)


def _shifted_moments(
    states: Tensor, row_weight: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Means and mean squares of the shifted states under each training set, float64 [problem, scaling, d_model].

    Without a shift near the mean, mean square − mean² would cancel.
    """
    mean = torch.zeros(
        len(states),
        len(row_weight),
        states.shape[2],
        dtype=torch.double,
        device=row_weight.device,
    )
    square = torch.zeros_like(mean)
    start = 0
    for block in _item_blocks(states, row_weight.device):
        shifted = block.to(row_weight.device).double() - shift
        block_weight = row_weight[:, start : start + block.shape[1]]
        mean += block_weight @ shifted
        square += block_weight @ shifted.square_()
        start += block.shape[1]
    return mean, square


def _subspace_iteration(
    design: DesignMatrix, row_weight: Tensor, scale: Tensor, rank: int, iterations: int
) -> tuple[Tensor, Tensor]:
    """Leading eigenvectors and eigenvalues of the weighted covariance of the scaled states, by randomised subspace
    iteration (Halko, Martinsson and Tropp 2011) with a Rayleigh–Ritz step."""
    n_problems, _, width = scale.shape
    rank = min(rank, int((row_weight > 0).sum()), width)
    # Drawn on the CPU, so that every device starts from the same numbers.
    start_vectors = torch.randn(
        rank, width, generator=torch.Generator().manual_seed(0)
    ).to(scale.device)
    basis = start_vectors.expand(n_problems, -1, -1)

    def centred_product(vectors: Tensor) -> Tensor:
        product = design.matmat(vectors * scale)
        return product - (product * row_weight).sum(-1, keepdim=True)

    for left in reversed(range(iterations)):
        rows = design.rmatmat(centred_product(basis) * row_weight) * scale
        basis = _condition(rows) if left else _orthonormalise(rows)
    projected = centred_product(basis).double()
    eigenvalues, rotation = torch.linalg.eigh(
        (projected * row_weight) @ projected.transpose(1, 2)
    )
    return rotation.transpose(1, 2).float() @ basis, eigenvalues.clamp(min=0).float()


def _condition(rows: Tensor) -> Tensor:
    """A basis of the same span that is nearly orthonormal: all that keeps an iteration from losing directions.

    By a shifted Cholesky factor of the Gram matrix (Fukaya and others 2020), which costs less than eigenvectors.
    """
    exact = rows.double()
    gram = exact @ exact.transpose(1, 2)
    shift = 1e-12 * gram.diagonal(dim1=1, dim2=2).sum(-1).clamp(min=1e-280)
    gram.diagonal(dim1=1, dim2=2).add_(shift[:, None])
    return torch.linalg.solve_triangular(
        torch.linalg.cholesky(gram), exact, upper=False
    ).float()


def _orthonormalise(rows: Tensor) -> Tensor:
    """An orthonormal basis of the span of rows [problem, row, d_model], by the Gram matrix (SVQB, Stathopoulos and Wu
    2002); redundant rows become zero."""
    exact = rows.double()
    eigenvalues, rotation = torch.linalg.eigh(exact @ exact.transpose(1, 2))
    independent = eigenvalues > 1e-12 * eigenvalues.amax(-1, keepdim=True)
    inverse_length = torch.where(
        independent, eigenvalues.clamp(min=1e-300).rsqrt(), 0.0
    )
    return ((rotation * inverse_length[:, None, :]).transpose(1, 2) @ exact).float()
