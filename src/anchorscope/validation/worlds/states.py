"""States of a world's items, clean and cut, in as many replicas as are asked for.

A state is a set of independent directions, mixed by a rotation. Part by part: the question's evidence, the answer's
evidence, what leans with the item's kind, the relation's codes, and nuisance that tells nothing. The cut redraws the
question's evidence, the question's code of the relation and half of the nuisance, and moves all items alike towards
"false", as cuts of real models do. A random cut redraws a few directions of nuisance.

Labels and relations are the same in all replicas, so that replicas are solved together as problems are.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.validation.worlds.world import N_RELATIONS, World

WIDTH = 48
"""Directions of a state."""
TOWARDS_FALSE = 1.0
"""How far the cut moves the question's part of every item, in standard deviations of its noise."""
TRUE_OF_RELATION = 0.7
"""Share of true answers in the relations of one half, and of false ones in those of the other."""
QUESTION_OF_RELATION = 0.85
"""Likewise for question and answer items."""
_CODE = 2.0  # how far a state leans with its relation, in the question's part and in the answer's
_TOKENS = (2, 5)  # of a name
_CUT_NOISE = 0.5  # of the question's part once it is cut: little comes from there, so that missed tokens are heard
_RANDOM_CUT = 4  # directions of nuisance that it redraws


@dataclass(frozen=True)
class Planted:
    """Items before they are mixed: every part a direction of its own. First axis: replicas."""

    labels: Bool[np.ndarray, " item"]
    relations: Int[np.ndarray, " item"]
    """All 0 where there are none."""
    kind: Float[np.ndarray, "replica item"]
    """1: a question item, 0: an answer item; anything between where shares are graded."""
    clean: Float[np.ndarray, "replica item direction"]
    """What tells something: question, answer, what leans with the kind, codes of the relation."""
    cut: Float[np.ndarray, "replica item direction"]
    """The same under the cut."""


@dataclass(frozen=True)
class Made:
    """States as a model would give them."""

    planted: Planted
    clean: Float[Tensor, "replica item d_model"]
    cut: Float[Tensor, "replica item d_model"]
    """Under the knockout."""
    random: Float[Tensor, "replica item d_model"]
    """Under a cut that takes nothing of the evidence."""

    def take(self, number: int) -> "Made":
        """The first replicas."""
        few = slice(number)
        planted = replace(
            self.planted, kind=self.planted.kind[few], clean=self.planted.clean[few], cut=self.planted.cut[few]
        )
        return Made(planted, self.clean[few], self.cut[few], self.random[few])


def plant(world: World, n_items: int, replicas: int, rng: np.random.Generator) -> Planted:
    """Draws the telling directions of every item."""
    labels, relations = _labels(world, n_items)
    sign = np.where(labels, 1.0, -1.0)
    shape = (replicas, n_items)
    kind = _kinds(world, labels, relations, shape, rng)
    share = world.shares(kind)
    evidence = world.strength * sign * np.where(rng.random(shape) < world.label_noise, -1.0, 1.0)
    question = np.sqrt(share) * evidence + rng.standard_normal(shape)
    answer = np.sqrt(1 - share) * evidence + rng.standard_normal(shape)
    left = _left_by_the_cut(world, question, rng)
    stays = np.stack([answer, *_leaning(world, kind, rng)], axis=-1)
    clean, cut = (np.concatenate([one[..., None], stays], axis=-1) for one in (question, left))
    if world.by_relation:
        code = np.eye(N_RELATIONS)[relations]
        noise = rng.standard_normal((3, *shape, N_RELATIONS))
        of_answer = _CODE * code + noise[1]
        clean = np.concatenate([clean, _CODE * code + noise[0], of_answer], axis=-1)
        cut = np.concatenate([cut, noise[2], of_answer], axis=-1)
    return Planted(labels, relations, kind, clean, cut)


def _labels(world: World, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the answers are true; relations, where there are some, differ in how many of theirs are."""
    place = np.arange(n_items)
    if not world.by_relation:
        return place % 2 == 0, np.zeros(n_items, dtype=np.int64)
    relations = place % N_RELATIONS
    often = np.where(relations % 2 == 0, TRUE_OF_RELATION, 1 - TRUE_OF_RELATION)
    within = place // N_RELATIONS
    return np.floor((within + 1) * often) > np.floor(within * often), relations


def _kinds(
    world: World, labels: np.ndarray, relations: np.ndarray, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    if world.division == "graded":
        return rng.beta(1.0, 1.0, shape)
    likely = question_share_of(world, labels, relations)
    return (rng.random(shape) < likely).astype(np.float64)


def question_share_of(world: World, labels: np.ndarray, relations: np.ndarray) -> np.ndarray:
    """How likely an item with this label and relation is a question item."""
    if world.by_relation:
        return np.where(relations % 2 == 0, QUESTION_OF_RELATION, 1 - QUESTION_OF_RELATION)
    return np.where(labels, world.question_true, 1 - world.question_true)


def _leaning(world: World, kind: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Directions that lean with the kind, or with two signs whose product it is."""
    found = []
    if world.visible:
        found.append(world.visible * (2 * kind - 1) + rng.standard_normal(kind.shape))
    if world.hidden:
        first = np.where(rng.random(kind.shape) < 0.5, 1.0, -1.0)
        second = first * np.where(kind > 0.5, 1.0, -1.0)
        found += [world.hidden * one + rng.standard_normal(kind.shape) for one in (first, second)]
    return found


def _left_by_the_cut(world: World, question: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The question's part under the cut: new noise, but for the tokens that were missed."""
    fresh = _CUT_NOISE * rng.standard_normal(question.shape)
    if not world.missed:
        return fresh - TOWARDS_FALSE
    tokens = rng.integers(_TOKENS[0], _TOKENS[1] + 1, question.shape)
    missed = rng.binomial(tokens, world.missed) / tokens
    # Each token has its share of the evidence and of the noise; given their sum, that of some of them is uncertain.
    kept = missed * question + np.sqrt(missed * (1 - missed)) * rng.standard_normal(question.shape)
    return kept + np.sqrt(1 - missed) * fresh - (1 - missed) * TOWARDS_FALSE


def make_states(world: World, n_items: int, replicas: int, rng: np.random.Generator, width: int = WIDTH) -> Made:
    """Draws items and mixes their directions with nuisance, by a rotation of each replica's own."""
    planted = plant(world, n_items, replicas, rng)
    n_nuisance = width - planted.clean.shape[-1]
    deviation = (1 + np.arange(n_nuisance)) ** -0.5
    nuisance, other = (rng.standard_normal((replicas, n_items, n_nuisance)) * deviation for _ in range(2))
    redrawn, by_chance = nuisance.copy(), nuisance.copy()
    redrawn[..., ::2] = other[..., ::2]
    by_chance[..., :_RANDOM_CUT] = other[..., :_RANDOM_CUT]
    rotation = np.linalg.qr(rng.standard_normal((replicas, width, width)))[0]
    clean, cut, random = (
        torch.from_numpy((np.concatenate([telling, rest], axis=-1) @ rotation).astype(np.float32))
        for telling, rest in ((planted.clean, nuisance), (planted.cut, redrawn), (planted.clean, by_chance))
    )
    return Made(planted, clean, cut, random)
