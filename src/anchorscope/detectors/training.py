"""Who learns from what: training sets with grouped inner folds, for all fits at once; and stacking on a few columns.

A training set is a part of the items; what it leaves out judges the detector. Within it, inner folds choose strengths,
layers, gates and stacking weights. So every fit is made once without each inner fold and once with all of them, and
`assemble` gives each item the log-odds of a fit that never saw it: an item of the training set those of the fit without
its inner fold, any other item those of the fit on the whole set. Groups never straddle. In stacking every set has its
own columns (log-odds of probes that never saw the item, plain numbers), so regressions are solved by Newton's method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.detectors.features import Features
from anchorscope.errors import UserError
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import weighted_auc
from anchorscope.stats.streams import priorities, stream

INNER_FOLDS = 3
"""Inner folds of every training set: it has a fit without each of them, and one on all."""


@dataclass(frozen=True)
class Dataset:
    """Items of one dataset (or of several, taken together) with all that detectors may read."""

    name: str
    features: Features
    labels: Bool[np.ndarray, " item"]
    groups: Int[np.ndarray, " item"]
    """Items of one group stay together, and are not each other's neighbours."""
    relations: Sequence[str | None]
    item_ids: Sequence[str]
    natural: Float[np.ndarray, " item"]
    """How many graded answers stand behind each item: the weights that bring back the natural share of true ones."""
    group_keys: Sequence[frozenset[str]]
    """What ties an item to items of other datasets: its question and its subject."""


@dataclass(frozen=True)
class Training:
    """Training sets over the same items."""

    labels: Bool[np.ndarray, "set item"]
    """Each set may have labels of its own: those of a control are tossed, those of a gate are no truth."""
    members: Bool[np.ndarray, "set item"]
    inner: Int[np.ndarray, "set item"]
    """Inner fold of each member; -1 elsewhere."""
    weights: Float[np.ndarray, "set item"]
    """How much an item teaches and counts."""

    @property
    def n_sets(self) -> int:
        return len(self.members)

    def take(self, sets: slice | Int[np.ndarray, " chosen"]) -> "Training":
        return Training(*(part[sets] for part in vars(self).values()))

    @staticmethod
    def together(several: "Sequence[Training]", axis: int = 0) -> "Training":
        """The sets of all of these, which are of the same items; along the other axis, the same sets of more items."""
        parts = zip(*(vars(training).values() for training in several), strict=True)
        return Training(*(np.concatenate(part, axis=axis) for part in parts))

    def fitted_on(self, device: torch.device) -> Float[Tensor, "set fit item"]:
        """The weight of every item in every fit, 0 where it is left out."""
        members, inner = (
            torch.from_numpy(self.members).to(device),
            torch.from_numpy(self.inner).to(device),
        )
        folds = torch.arange(INNER_FOLDS + 1, device=device)[
            None, :, None
        ]  # the last fit leaves none out
        learned = members[:, None] & (inner[:, None] != folds)
        return learned * self._weights(device)

    def held_out(self, device: torch.device) -> Float[Tensor, "set inner_fold item"]:
        """The weight of every item in the inner fold that holds it out, 0 elsewhere."""
        inner = torch.from_numpy(self.inner).to(device)
        held = inner[:, None] == torch.arange(INNER_FOLDS, device=device)[None, :, None]
        return held * self._weights(device)

    def _weights(self, device: torch.device) -> Float[Tensor, "set 1 item"]:
        return torch.as_tensor(np.asarray(self.weights, np.float32), device=device)[
            :, None
        ]

    def assemble(
        self, scores: Float[Tensor, "set fit *more item"]
    ) -> Float[Tensor, "set *more item"]:
        """For each item the score of a fit that never saw it."""
        fit = torch.from_numpy(np.where(self.inner < 0, INNER_FOLDS, self.inner)).to(
            scores.device
        )
        shape = (len(fit), 1, *[1] * (scores.dim() - 3), fit.shape[1])
        index = fit.view(shape).expand(len(fit), 1, *scores.shape[2:])
        return scores.gather(1, index)[:, 0]

    def inner_auc(
        self, scores: Float[Tensor, "*more set item"]
    ) -> Float[Tensor, "*more set"]:
        """AUC of assembled scores among each set's members, within its inner folds; it chooses, and judges nothing."""
        held = self.held_out(scores.device)
        return weighted_auc(
            scores[..., None, :], held, self.targets(scores.device)[:, None]
        )

    def targets(self, device: torch.device) -> Float[Tensor, "set item"]:
        return torch.from_numpy(self.labels).to(device).float()


def nested_sets(dataset: Dataset, folds: int, seed: int, name: str) -> Training:
    """A training set for every outer fold, which it leaves out."""
    strata = truth_strata(dataset.labels, dataset.relations)
    order = priorities(seed, f"detector folds {name}", dataset.item_ids)
    outer = grouped_folds(dataset.groups, strata, folds, order)
    if len(np.unique(outer)) < folds:
        n_groups = len(np.unique(dataset.groups))
        raise UserError(
            f"{n_groups} groups are too few for {folds} folds: some would be empty; take fewer (--folds), or ask more "
            f"questions (--limit)."
        )
    return _with_inner(dataset, outer[None] != np.arange(folds)[:, None], seed, name)


def whole_set(dataset: Dataset, seed: int, name: str) -> Training:
    return _with_inner(
        dataset, np.ones((1, len(dataset.labels)), dtype=bool), seed, f"{name} whole"
    )


def tossed(dataset: Dataset, seed: int, toss: int) -> Dataset:
    """The same items with labels permuted within each relation, which keeps its share of true answers."""
    rng = stream(seed, "tossed labels", str(toss))
    relation = np.array([name or "" for name in dataset.relations])
    labels = dataset.labels.copy()
    for name in np.unique(relation):
        inside = np.flatnonzero(relation == name)
        labels[inside] = rng.permutation(labels[inside])
    return replace(dataset, labels=labels)


def _with_inner(
    dataset: Dataset, members: Bool[np.ndarray, "set item"], seed: int, name: str
) -> Training:
    strata = truth_strata(dataset.labels, dataset.relations)
    inner = np.full(members.shape, -1, dtype=np.int64)
    for index, chosen in enumerate(members):
        learns = np.flatnonzero(chosen)
        order = priorities(seed, f"detector inner {name} {index}", dataset.item_ids)[
            learns
        ]
        inner[index, learns] = grouped_folds(
            dataset.groups[learns], strata[learns], INNER_FOLDS, order
        )
    held = inner[:, None] == np.arange(INNER_FOLDS)[None, :, None]
    folds = np.concatenate([held, members[:, None] & ~held]).reshape(
        -1, members.shape[1]
    )
    # whatever teaches or judges
    parts = np.concatenate([folds, ~members[~members.all(axis=1)]])
    if not (
        (parts & dataset.labels).any(axis=1) & (parts & ~dataset.labels).any(axis=1)
    ).all():
        n_true, n_groups = int(dataset.labels.sum()), len(np.unique(dataset.groups))
        raise UserError(
            f"{n_true} true and {len(dataset.labels) - n_true} false answers in {n_groups} groups "
            f"are too few: every fold needs some of both; ask more questions (--limit), or train on another dataset."
        )
    # torch wants to be able to write
    labels = np.broadcast_to(dataset.labels, members.shape).copy()
    return Training(labels, members, inner, np.ones(members.shape))


PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
"""Factors λ of ½‖w‖² beside the mean log-loss, for columns of deviation one."""
_STEPS = 25
_HALVINGS = 6
_DONE = 1e-7  # largest element of the gradient at which a fit is done
_AT_ONCE = 2**27  # numbers in the largest working tensor


@dataclass(frozen=True)
class Stacked:
    """Fitted regressions, acting on the columns as they are."""

    weight: Float[Tensor, "set fit column"]
    bias: Float[Tensor, "set fit"]
    scores: Float[Tensor, "set item"]
    """Log-odds of each item by a fit that never saw it."""

    def of_set(self, number: int) -> tuple[tuple[float, ...], float]:
        return tuple(self.weight[number, INNER_FOLDS].tolist()), float(
            self.bias[number, INNER_FOLDS]
        )


def fit_stack(
    columns: Float[Tensor, "set item column"],
    training: Training,
    penalties: tuple[float, ...] = PENALTIES,
) -> Stacked:
    """A regression of truth on the columns, for every training set; the inner folds choose among the penalties."""
    step = max(1, _AT_ONCE // (4 * columns[0].numel() + 4 * columns.shape[1]))
    sets = torch.arange(len(columns)).split(step)
    parts = [
        _fit(columns[own].double(), training.take(own.numpy()), penalties)
        for own in sets
    ]
    return Stacked(
        *(
            torch.cat(fields)
            for fields in zip(*(vars(part).values() for part in parts), strict=True)
        )
    )


def calibrated(scores: Float[Tensor, "set item"], training: Training) -> Stacked:
    """Platt scaling: slope and intercept that make scores log-odds, by hardly penalised regression."""
    return fit_stack(scores[..., None], training, (1e-4,))


def _fit(columns: Tensor, training: Training, penalties: tuple[float, ...]) -> Stacked:
    device = columns.device
    weights, targets = (
        training.fitted_on(device).double(),
        training.targets(device).double(),
    )
    members = weights[:, INNER_FOLDS]
    share = (members / members.sum(-1, keepdim=True))[..., None]
    mean = (share * columns).sum(1, keepdim=True)
    deviation = (share * (columns - mean).square()).sum(1, keepdim=True).sqrt()
    varies = deviation > 1e-9 * (1 + mean.abs())
    scaled = torch.where(
        varies, (columns - mean) / torch.where(varies, deviation, 1.0), 0.0
    )
    design = torch.cat([scaled, torch.ones_like(scaled[..., :1])], dim=-1)
    held = training.held_out(device).double()
    weights_of, logits_of, losses = [], [], []
    for penalty in penalties:
        weights_of.append(newton(design, targets, weights, penalty))
        logits_of.append(weights_of[-1] @ design.transpose(1, 2))
        signed = logits_of[-1][:, :INNER_FOLDS] * (1 - 2 * targets)[:, None]
        losses.append((softplus(signed) * held).sum((1, 2)) / held.sum((1, 2)))
    chosen = torch.stack(losses).argmin(0), torch.arange(len(targets), device=device)
    weight, logits = torch.stack(weights_of)[chosen], torch.stack(logits_of)[chosen]
    raw = torch.where(
        varies, weight[..., :-1] / torch.where(varies, deviation, 1.0), 0.0
    )
    bias = weight[..., -1] - (raw * mean).sum(-1)
    return Stacked(raw, bias, training.assemble(logits))


def newton(
    design: Float[Tensor, "set item column"],
    targets: Float[Tensor, "set item"],
    weights: Float[Tensor, "set fit item"],
    penalty: float,
) -> Float[Tensor, "set fit column"]:
    """Minimises mean log-loss + ½λ‖w‖², the last column (the intercept) without penalty; damped Newton steps."""
    share = weights / weights.sum(-1, keepdim=True)
    ridge = design.new_full((design.shape[-1],), penalty)
    ridge[-1] = 1e-9
    solution = design.new_zeros(*weights.shape[:2], design.shape[-1])
    sign = (1 - 2 * targets)[:, None]

    def objective(weight: Tensor) -> Tensor:
        logits = weight @ design.transpose(1, 2)
        return (softplus(logits * sign) * share).sum(-1) + (
            ridge * weight.square()
        ).sum(-1) / 2

    now = objective(solution)
    for _ in range(_STEPS):
        probability = torch.sigmoid(solution @ design.transpose(1, 2))
        gradient = (
            (probability - targets[:, None]) * share
        ) @ design + ridge * solution
        if float(gradient.abs().max()) < _DONE:
            break
        curvature = probability * (1 - probability) * share
        hessian = (design[:, None] * curvature[..., None]).transpose(2, 3) @ design[
            :, None
        ] + torch.diag(ridge)
        step = torch.linalg.solve(hessian, gradient[..., None])[..., 0]
        after = objective(solution - step)
        for _ in range(_HALVINGS):
            worse = (after > now + 1e-12)[..., None]
            if not bool(worse.any()):
                break
            step = torch.where(worse, step / 2, step)
            after = objective(solution - step)
        solution = torch.where((after <= now)[..., None], solution - step, solution)
        now = torch.fmin(now, after)
    return solution
