"""Inputs made by hand: states with a planted truth signal and planted pathways, real probes on them, and no model.

Coordinate 0 of the states says whether the answer is true; coordinate 1 says, if asked to, which pathway an item takes;
the rest is noise. The cut turns coordinate 0 of the items that hang on the question and leaves the others alone.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.datasets.question import Question
from anchorscope.evidence.delta_p import Measured
from anchorscope.evidence.effects import Scoring
from anchorscope.evidence_parts import principal
from anchorscope.execute.executor import LocalExecutor
from anchorscope.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.items import Item
from anchorscope.plan.passes import Planner
from anchorscope.probes.crossfit import fit_probes, make_splits, score_states
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.progress import Silent
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import unnamed
from made_items import make_item, make_setting, no_model

N_UNUSED = 20
"""Questions that were asked and not drawn; they stand after the used ones."""

Bools = NDArray[np.bool_]


def planted(n: int) -> tuple[Bools, Bools]:
    """Labels, and whether an item hangs on the question: fully crossed, in the order TQ FQ TA FA."""
    return np.arange(n) % 2 == 0, (np.arange(n) // 2) % 2 == 0


def make_inputs(
    n: int = 160,
    n_layers: int = 6,
    width: int = 12,
    n_folds: int = 4,
    seed: int = 0,
    resamples: int = 300,
    truth_signal: float = 2.0,
    pathway_signal: float = 0.0,
    after_cut: float = -0.8,
    shift: float = 0.0,
    asks: Bools | None = None,
    groups: NDArray[np.int64] | None = None,
    **overrides: Any,
) -> ExperimentInputs:
    """Inputs whose pathways are known.

    `truth_signal` and `pathway_signal` are how far the two kinds stand apart from 0, in deviations of the noise, at the
    best layer (two thirds up); `after_cut` is what is left of the truth signal of items with `asks` after the knockout,
    and `shift` what the knockout takes from coordinate 0 of all. `overrides` replace any field of the inputs.
    """
    rng = np.random.default_rng(seed)
    labels, own_asks = planted(n)
    asks = own_asks if asks is None else asks
    groups = np.arange(n) // 2 if groups is None else groups
    best = max(1, round(2 / 3 * (n_layers - 1)))
    ramp = 1 - np.abs(np.arange(n_layers) - best) / n_layers
    states = rng.normal(0, 1, (n_layers, n, width))
    truth = truth_signal * ramp[:, None] * np.where(labels, 1.0, -1.0)
    states[:, :, 0] += truth
    states[:, :, 1] += pathway_signal * ramp[:, None] * np.where(asks, 1.0, -1.0)
    cut = states.copy()
    cut[:, :, 0] += np.where(asks, (after_cut - 1) * truth, 0.0) - shift
    cut[:, :, 2:] += rng.normal(0, 0.05, cut[:, :, 2:].shape)
    elsewhere = states + rng.normal(0, 0.2, states.shape)
    still = states + rng.normal(0, 1e-4, states.shape)

    folds = grouped_folds(
        groups, truth_strata(labels), n_folds, unnamed(0, "test", len(labels))
    )
    splits = make_splits(labels, groups, folds, seed)
    clean = torch.as_tensor(states, dtype=torch.float32)
    (probes,) = fit_probes(clean[None], splits, ["synthetic"])
    scoring = Scoring(((probes,),), splits.folds)
    scorer = scoring.scorer("cpu")
    runs = {
        name: torch.as_tensor(run, dtype=torch.float32)
        for name, run in (("knockout", cut), ("random", elsewhere), ("none", still))
    }
    cut_states = {name: runs[name] for name in ("knockout", "random")}
    before = torch.as_tensor(
        np.random.default_rng(seed).normal(size=clean.shape), dtype=torch.float32
    )
    measured = Measured(
        labels=labels,
        groups=groups,
        folds=splits.folds,
        before=_at_place(score_states(scorer, clean[None, None])),
        after={
            name: _at_place(score_states(scorer, run[None, None]))
            for name, run in runs.items()
        },
        ran=dict.fromkeys(runs, np.arange(n)),
        reference=probes.reference,
    )
    inputs = ExperimentInputs(
        dataset="synthetic",
        items=_items(labels, groups, rng),
        used=np.arange(n),
        states=lambda: clean,
        cut_states=lambda: cut_states,
        states_before_answer=lambda: before,
        scoring=scoring,
        splits=splits,
        measured=measured,
        headline=(0, 0),
        weights=group_weights(groups, resamples, rng),
        setting=make_setting(("final",), seed=seed),
        window=None,
        max_new_tokens=8,
        executor=LocalExecutor(no_model),
        planner=Planner(
            n_layers, n_heads=2, windows=(None,) * n_layers, batch_tokens=1024
        ),
        directions=lambda n_items: principal.default_directions(
            n_items, clean.shape[-1]
        ),
        device="cpu",
        progress=Silent(),
    )
    return replace(inputs, **overrides)


def directions_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the number of directions of every reduction to come."""
    taken: list[int] = []
    reduce = principal.principal_states

    def watched(states: torch.Tensor, directions: int, *others: Any) -> torch.Tensor:
        taken.append(directions)
        return reduce(states, directions, *others)

    monkeypatch.setattr(principal, "principal_states", watched)
    return taken


def _at_place(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """[layer, item] at the only position and site."""
    return logits[:, 0, 0].T


def _items(
    labels: Bools, groups: NDArray[np.int64], rng: np.random.Generator
) -> list[Item]:
    n, last = len(labels), int(groups.max())
    items, tokens = [], make_item((0, 1, 2, 3, 4), 4, (1, 2), 1).tokens
    for index in range(n + N_UNUSED):
        used = index < n
        truthful = bool(labels[index]) if used else index % 4 == 0
        group = int(groups[index]) if used else last + 1 + index - n
        question = Question(
            dataset="synthetic",
            item_id=f"item-{index}",
            question=f"What is the colour of stone {index}?",
            answers=(f"shade {index}",),
            subject=f"stone {index}",
            relation=f"colour {index % 3}",
            metadata={"popularity": float(rng.integers(1, 10_000))},
        )
        answer = Answer(
            f"shade {index if truthful else -1}",
            (4,),
            (float(-rng.exponential()),),
            "answered",
        )
        label = Label(
            truthful, group, "used" if used else "unbalanced", 1.25 if used else 0.0
        )
        items.append(Item(question, answer, label, tokens))
    return items


def rows(found: Found, quantity: str, **about: Any) -> list[Statistic]:
    """The rows of a quantity whose columns are as asked."""
    return [
        row
        for row in found.statistics
        if row.quantity == quantity
        and all(getattr(row, name) == value for name, value in about.items())
    ]


def only(found: Found, quantity: str, **about: Any) -> Statistic:
    (row,) = rows(found, quantity, **about)
    return row
