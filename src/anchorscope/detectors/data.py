"""What all detectors of some training sets share: states along principal directions, probes on them, and stacks.

Labels play no part in the directions, so they are found once, from the clean states of all items. Probes of all layers
and training sets are fitted at once: the inner folds' log-loss chooses a strength for each, and the fits of the inner
folds at that strength are kept beside the fit on the whole set, so that every training item has log-odds by a probe
that never saw it. Everything is made when it is first asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.detectors.features import CLEAN, CONFIDENCE, Features, StateKey
from anchorscope.detectors.fitted import Fitted, LinearProbe, WeightedSum
from anchorscope.detectors.training import INNER_FOLDS, Training, fit_stack
from anchorscope.evidence_parts.principal import (
    Directions,
    default_directions,
    principal_directions,
)
from anchorscope.models.process_settings import true_float32, workers_of_one_thread
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.grid_search import STRENGTHS, weighted_auc
from anchorscope.probes.logistic import TrainingSets, solve
from anchorscope.probes.standardise import standardise

RESIDUAL = "residual"
"""The site that probes read beside the headline's."""


@dataclass(frozen=True)
class Bank:
    """Fitted probes, acting on states along principal directions."""

    weight: Float[Tensor, "problem set fit direction"]
    bias: Float[Tensor, "problem set fit"]
    inner_auc: Float[Tensor, "problem set"]


def fit_bank(
    states: Shaped[Tensor, "problem item direction"],
    training: Training,
    device: torch.device,
) -> Bank:
    """Probes of every problem and training set."""
    targets, fitted, held = (
        training.targets(device),
        training.fitted_on(device),
        training.held_out(device),
    )
    n_sets, n_strengths = training.n_sets, len(STRENGTHS)
    strengths = torch.tensor(STRENGTHS, device=device)
    refit = TrainingSets(
        labels=targets,
        members=fitted[:, INNER_FOLDS],
        scaled_on=fitted[:, INNER_FOLDS] > 0,
        scaling=torch.arange(n_sets, device=device),
        strengths=torch.empty(0, device=device),
    )
    grid = replace(
        refit,
        labels=targets.repeat_interleave(INNER_FOLDS * n_strengths, 0),
        members=fitted[:, :INNER_FOLDS].flatten(0, 1).repeat_interleave(n_strengths, 0),
        scaling=torch.arange(n_sets, device=device).repeat_interleave(
            INNER_FOLDS * n_strengths
        ),
        strengths=strengths.repeat(n_sets * INNER_FOLDS),
    )
    n_problems, n_items, width = states.shape
    plan = plan_chunks(
        (n_problems, n_items, width),
        len(grid.members),
        device,
        None,
        states.element_size(),
    )

    @torch.no_grad()
    def fit(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, ...]:
        data = standardise(chunk, refit.scaled_on, rescale=False)
        inner = solve(data, grid, plan.columns)
        by_strength = (n_sets, INNER_FOLDS, n_strengths)
        logits = inner.logits.unflatten(1, by_strength)
        chosen = _held_out_loss(logits, targets, held).argmin(-1)
        whole = solve(data, replace(refit, strengths=strengths[chosen]), plan.columns)

        def at_chosen(values: Tensor) -> Tensor:
            index = chosen.view(*chosen.shape, 1, 1, *[1] * (values.dim() - 4))
            return values.take_along_dim(index, dim=3)[:, :, :, 0]

        of_folds = [
            at_chosen(part.unflatten(1, by_strength))
            for part in data.to_raw(inner.weight, inner.intercept, grid.scaling)
        ]
        of_all = data.to_raw(whole.weight, whole.intercept, refit.scaling)
        parts = [
            torch.cat([folds, all_items[:, :, None]], dim=2)
            for folds, all_items in zip(of_folds, of_all, strict=True)
        ]
        return (
            *(part.to(device) for part in parts),
            weighted_auc(at_chosen(logits), held, targets[:, None]),
        )

    with true_float32():
        chunks = list(in_chunks(states, plan, device, fit))
    return Bank(*(torch.cat(parts) for parts in zip(*chunks, strict=True)))


def _held_out_loss(logits: Tensor, targets: Tensor, held: Tensor) -> Tensor:
    """Weighted mean log-loss of the inner folds' held-out items, [problem, set, strength]."""
    total = torch.zeros(
        *logits.shape[:2], logits.shape[3], dtype=torch.double, device=logits.device
    )
    # one at a time: all together would be twice the grid's own memory
    for fold in range(INNER_FOLDS):
        signed = logits[:, :, fold] * (1 - 2 * targets)[:, None]
        total += (softplus(signed) * held[:, fold, None]).double().sum(-1)
    return total / held.sum((1, 2)).double()[:, None]


@dataclass(frozen=True)
class ProjectedStates:
    """States along principal directions."""

    keys: tuple[StateKey, ...]
    """The places: run, site and layer of the states."""
    directions: Directions
    values: Float[Tensor, "place item direction"]


@dataclass(frozen=True)
class ProbeFits:
    """One linear fit of every training set, at a place of the set's own."""

    training: Training
    states: ProjectedStates
    best: Int[np.ndarray, " set"]
    weight: Float[Tensor, "set fit direction"]
    bias: Float[Tensor, "set fit"]

    @cached_property
    def scores(self) -> Float[Tensor, "set item"]:
        """Log-odds of each item by a fit that never saw it."""
        return self.scores_of(self.states.values)

    def scores_of(
        self, states: Float[Tensor, "place item direction"]
    ) -> Float[Tensor, "set item"]:
        """The same of other states at the same places."""
        log_odds = self.weight.new_empty(*self.bias.shape, states.shape[1])
        for place in np.unique(self.best).tolist():
            sets = np.flatnonzero(self.best == place)
            log_odds[sets] = (
                self.weight[sets] @ states[place].T + self.bias[sets][..., None]
            )
        return self.training.assemble(log_odds)

    def build(self, number: int) -> LinearProbe:
        """One training set's probe, acting on raw states."""
        place = int(self.best[number])
        weight, bias = (
            self.weight[number, INNER_FOLDS],
            float(self.bias[number, INNER_FOLDS]),
        )
        raw, raw_bias = self.states.directions.to_raw(place, weight, bias)
        return LinearProbe(self.states.keys[place], raw.float(), raw_bias)


@dataclass(frozen=True)
class TrainingData:
    """Items with their features, and who learns from which."""

    features: Features
    training: Training
    site: str
    """The headline site: single probes read there, and everything under a cut."""
    device: torch.device

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return tuple(
            sorted(
                layer
                for run, site, layer in self.features.states
                if run == CLEAN and site == self.site
            )
        )

    @cached_property
    def keys(self) -> tuple[StateKey, ...]:
        """Clean states: the headline site's first, then the residual stream's."""
        residual = sorted(
            key for key in self.features.states if key[:2] == (CLEAN, RESIDUAL)
        )
        return tuple(dict.fromkeys([*self.headline(CLEAN), *residual]))

    def headline(self, run: str) -> tuple[StateKey, ...]:
        return tuple((run, self.site, layer) for layer in self.layers)

    @cached_property
    def clean(self) -> ProjectedStates:
        """The clean states of all keys."""
        return self.project(self.keys)

    def project(
        self, keys: tuple[StateKey, ...], directions: Directions | None = None
    ) -> ProjectedStates:
        """States along these directions, or along their own: each key is a problem by itself."""
        if directions is None:
            device, width = (
                self.device,
                next(iter(self.features.states.values())).shape[1],
            )
            most = default_directions(self.features.n_items, width)
            size = (
                1 if device.type == "cpu" else 16
            )  # every core of a CPU takes keys of its own
            groups = [keys[first : first + size] for first in range(0, len(keys), size)]

            def of_keys(own: tuple[StateKey, ...]) -> Directions:
                return principal_directions(
                    torch.stack([*map(self.features.state, own)]), most, device
                )

            with workers_of_one_thread(
                torch.get_num_threads() if size == 1 else 1
            ) as pool:
                weights, offsets = zip(
                    *((part.weight, part.offset) for part in pool.map(of_keys, groups)),
                    strict=True,
                )
            directions = Directions(torch.cat(weights), torch.cat(offsets))
        return ProjectedStates(
            keys,
            directions,
            directions.reduce(map(self.features.state, keys), self.device),
        )

    def changed(self, run: str) -> Float[Tensor, "layer item direction"]:
        """Another run's states at the headline site, along the clean directions."""
        return self.clean.directions.reduce(
            map(self.features.state, self.headline(run)), self.device
        )

    @cached_property
    def bank(self) -> Bank:
        return fit_bank(self.clean.values, self.training, self.device)

    @cached_property
    def probe(self) -> ProbeFits:
        """The single probe: at the layer of the headline site where the inner folds find the highest AUC."""
        return self.at_best(self.bank, range(len(self.layers)))

    @cached_property
    def residual_probe(self) -> ProbeFits:
        """The same in the residual stream."""
        return self.at_best(
            self.bank,
            [place for place, key in enumerate(self.keys) if key[1] == RESIDUAL],
        )

    def at_best(
        self, bank: Bank, places: Sequence[int], states: ProjectedStates | None = None
    ) -> ProbeFits:
        """Each training set's probe at the best of some places; on the clean states unless others are given."""
        chosen = torch.tensor(places, device=bank.inner_auc.device)
        best = chosen[bank.inner_auc[chosen].argmax(0)]
        of_sets = best, torch.arange(len(best), device=best.device)
        return ProbeFits(
            self.training,
            states or self.clean,
            best.cpu().numpy(),
            bank.weight[of_sets],
            bank.bias[of_sets],
        )

    def fit_at_best(self, *trainings: Training) -> list[ProbeFits]:
        """Fits at the single probe's layers, of the same training sets with other labels or other weights."""
        best, n = self.probe.best, len(trainings)
        weight, bias = (
            part.new_empty(n, *part.shape)
            for part in (self.probe.weight, self.probe.bias)
        )
        # a set is fitted at its own layer and at no other
        for place in np.unique(best).tolist():
            sets = np.flatnonzero(best == place)
            own = Training.together([training.take(sets) for training in trainings])
            bank = fit_bank(self.clean.values[place : place + 1], own, self.device)
            weight[:, sets], bias[:, sets] = (
                part[0].unflatten(0, (n, -1)) for part in (bank.weight, bank.bias)
            )
        return [
            replace(self.probe, weight=w, bias=b)
            for w, b in zip(weight, bias, strict=True)
        ]

    @cached_property
    def confidence(self) -> tuple[str, ...]:
        return tuple(name for name in CONFIDENCE if name in self.features.columns)

    def columns(self, names: tuple[str, ...]) -> Float[Tensor, "set item column"]:
        """Plain numbers, the same for every training set."""
        n_items = self.features.n_items
        values = (
            np.array([self.features.columns[name] for name in names])
            .reshape(len(names), n_items)
            .T
        )
        return torch.as_tensor(values, dtype=torch.float32, device=self.device).expand(
            self.training.n_sets, -1, -1
        )


@dataclass(frozen=True)
class DetectorFit:
    scores: Float[Tensor, "set item"]
    """Log-odds of each item by a fit that never saw it."""
    build: Callable[[int], Fitted] | None
    """The detector of one training set, as it is used; None for a baseline that can only be compared."""


def fit_stacked(
    data: TrainingData, probes: Sequence[ProbeFits], names: tuple[str, ...]
) -> DetectorFit:
    """A logistic regression on the log-odds of probes and on plain numbers: either may be none."""
    columns = torch.cat(
        [*(probe.scores[..., None] for probe in probes), data.columns(names)], dim=-1
    )
    stacked = fit_stack(columns, data.training)

    def build(number: int) -> WeightedSum:
        weight, bias = stacked.of_set(number)
        parts = tuple(probe.build(number) for probe in probes)
        return WeightedSum(
            parts, weight[: len(parts)], names, weight[len(parts) :], bias
        )

    return DetectorFit(stacked.scores, build)


def as_detector(fits: ProbeFits) -> DetectorFit:
    return DetectorFit(fits.scores, fits.build)
