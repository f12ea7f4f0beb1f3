"""Grounds made by hand: states with a planted truth signal and planted pathways, real probes on them, and no model.

Coordinate 0 of the states says whether the answer is true; coordinate 1 says, if asked to, which pathway an item takes;
the rest is noise. The cut turns coordinate 0 of the items that hang on the question and leaves the others alone.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from anchorscope.answers.conversation import Conversation
from anchorscope.evidence.experiments.ground import Asked, Ground, Settings
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget
from anchorscope.engine.sequences import TokenSequence
from anchorscope.evidence.effects import Effect, score_states
from anchorscope.evidence.gather import refit_logits
from anchorscope.evidence.items import Measured
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Silent
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import unnamed

N_UNUSED = 20
"""Questions that were asked and not drawn; they stand after the used ones."""

Bools = NDArray[np.bool_]


def planted(n: int) -> tuple[Bools, Bools]:
    """Labels, and whether an item hangs on the question: fully crossed, in the order TQ FQ TA FA."""
    return np.arange(n) % 2 == 0, (np.arange(n) // 2) % 2 == 0


def make_ground(
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
    retained: bool = False,
    labels: Bools | None = None,
    asks: Bools | None = None,
    groups: NDArray[np.int64] | None = None,
    **overrides: Any,
) -> Ground:
    """A ground whose pathways are known.

    `truth_signal` and `pathway_signal` are how far the two kinds stand apart from 0, in deviations of the noise, at the
    best layer (two thirds up); `after_cut` is what is left of the truth signal of items with `asks` after the knockout,
    and `shift` what the knockout takes from coordinate 0 of all. `retained` adds the assignment by what remains to a
    probe trained under the cut: nothing, where the cut turns half of the items, so let `after_cut` be near 0 for it.
    `overrides` replace any field of the ground.
    """
    rng = np.random.default_rng(seed)
    own_labels, own_asks = planted(n)
    labels = own_labels if labels is None else labels
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

    splits = make_splits(labels, groups, grouped_folds(groups, labels, n_folds, unnamed(0, "test", len(labels))), seed)
    clean = torch.as_tensor(states, dtype=torch.float32)
    (probes,) = fit_probes(clean[None], splits, ["synthetic"])
    scorer = Scorer([[probes]], splits.folds, torch.device("cpu"))
    runs = {"knockout": cut, "random": elsewhere, "none": still}
    effects = {name: _effect(name, torch.as_tensor(run, dtype=torch.float32), scorer) for name, run in runs.items()}
    before = score_states(scorer, clean[None, None])
    refits = {name: refit_logits(effects[name], splits, Silent()) for name in ("knockout", "random")}
    place = Measured(
        labels=labels,
        groups=groups,
        folds=splits.folds,
        probes=splits.probes,
        before=_by_probe(before),
        after={name: _by_probe(effect.logits) for name, effect in effects.items()},
        ran={name: effect.items for name, effect in effects.items()},
        n_cut={name: effect.n_cut for name, effect in effects.items()},
        reference=probes.reference,
        refits=refits if retained else {},
    )
    everyone = _everyone(labels, groups, rng)
    ground = Ground(
        dataset="synthetic",
        model=_no_model,
        talk=Conversation(_no_model, [one.question for one in everyone], Budget(1024)),
        everyone=everyone,
        used=np.arange(n),
        tokens=[ItemTokens(TokenSequence((0, 1, 2, 3, 4), 4, (4,)), (1, 2), 1) for _ in range(n)],
        states=clean,
        probes=probes,
        scorer=lambda: scorer,
        splits=splits,
        place=place,
        refits=refits,
        effects=effects,
        headline=(0, 0),
        weights=group_weights(groups, resamples, rng),
        settings=Settings(seed=seed, edges="all", most_items=None, window=None, max_new_tokens=8),
        budget=Budget(1024),
        device="cpu",
        progress=Silent(),
    )
    return replace(ground, **overrides)


def _effect(name: str, states: Tensor, scorer: Scorer) -> Effect:
    n = states.shape[1]
    return Effect(
        intervention=name,
        variant="all",
        items=np.arange(n),
        n_cut=np.full(n, 0 if name == "none" else 2),
        logits=score_states(scorer, states[None, None]),
        states=None if name == "none" else states,
    )


def _by_probe(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """[probe, layer, item] at the only position and site."""
    return logits[:, 0, 0].transpose(1, 2, 0)


def _everyone(labels: Bools, groups: NDArray[np.int64], rng: np.random.Generator) -> list[Asked]:
    """The used items, then some that were asked and not drawn."""
    n, last = len(labels), int(groups.max())
    asked = []
    for index in range(n + N_UNUSED):
        used = index < n
        truthful = bool(labels[index]) if used else index % 4 == 0
        group = int(groups[index]) if used else last + 1 + index - n
        question = Question(
            dataset="synthetic", item_id=f"item-{index}", question=f"What is the colour of stone {index}?",
            answers=(f"shade {index}",), subject=f"stone {index}", relation=f"colour {index % 3}",
            metadata={"popularity": float(rng.integers(1, 10_000))},
        )  # fmt: skip
        answer = Answer(f"shade {index if truthful else -1}", (4,), (float(-rng.exponential()),), "answered")
        label = Label(truthful, group, "used" if used else "unbalanced", 1.25 if used else 0.0)
        asked.append(Asked(question, answer, label))
    return asked


def _no_model() -> LanguageModel:
    raise AssertionError("this experiment was not expected to need the model")
