"""Worlds whose parts are known: states drawn without a model, with evidence for the label in given places.

A clean state holds a question feature, an answer feature and a match, each the label times a strength plus noise, among
directions that tell nothing. The state before the answer has the question's feature, the state with the key words cut
the answer's, and neither the match: the product of a sign in the question and one in the answer. Each state shares some
nuisance with the clean one; a control cut takes nuisance only. The truth is what an endless sample would give: the best
linear probe, and need(V) by least squares.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from anchorscope.evidence_parts.parts import NEEDS_ANSWER, NEEDS_QUESTION, four_parts
from anchorscope.stats.auc import auc

WIDTH = 120
"""Directions of a state that tell nothing."""
N_ENDLESS = 200_000
"""Items that stand for endlessly many."""
_NEWTON_STEPS = 8
_OF_A_GROUP = 40  # items, where there are endlessly many groups
_SIGN_NOISE = 0.3  # of the two signs whose product is the match
_OUTLIER_SCALE = 50.0
_N_OUTLIERS = 3


@dataclass(frozen=True)
class World:
    """Where the evidence is, in standard deviations of a feature's noise, and what makes it hard to attribute."""

    name: str
    about: str
    question: float = 0.0
    answer: float = 0.0
    match: float = 0.0
    true_share: float = 0.5
    """Share of true answers."""
    shared_noise: float = 0.0
    """Correlation of the noise of question and answer; 1: one and the same feature."""
    graded: bool = False
    """Whether every item divides its evidence between question and answer in a way of its own."""
    two_kinds: bool = False
    """Whether every item has all of its evidence in the question or all of it in the answer, and states tell which."""
    strength_range: float = 1.0
    """Ratio of the strongest to the weakest item's evidence."""
    strength_visible: bool = False
    """Whether a direction of every state tells an item's strength."""
    noise_only: bool = False
    """Both cuts add noise to the clean state and take nothing away."""
    recoded: bool = False
    """The cut takes nothing, but turns the question's feature by a sign that another direction tells."""
    heavy_tails: bool = False
    """Noise of Student's t with three degrees of freedom."""
    outliers: bool = False
    """Some directions that tell nothing are fifty times as large as the others."""
    n_groups: int | None = None
    """Groups that share half of their features' noise; None: every item is its own."""


_ALL = (
    World(
        "half-auc-0.62", "half in the question, half in the answer; weak", 0.15, 0.15
    ),
    World("half", "the same, AUC 0.85", 0.52, 0.52),
    World("half-auc-0.98", "the same, a strong probe", 1.03, 1.03),
    World("true-10", "half and half, few true answers", 0.52, 0.52, true_share=0.1),
    World("true-90", "half and half, few false answers", 0.52, 0.52, true_share=0.9),
    World("question", "all of it in the question", 0.74),
    World("answer", "all of it in the answer", 0.0, 0.74),
    World("redundant-0.5", "noise in common", 0.6, 0.6, shared_noise=0.5),
    World("redundant-0.9", "nearly the same noise", 0.7, 0.7, shared_noise=0.9),
    World("same", "both tell one and the same thing", 0.74, 0.74, shared_noise=1.0),
    World("match", "only question and answer together tell it", match=0.74),
    World("thirds", "question, answer and match a third each", 0.43, 0.43, 0.43),
    World("graded", "every item divides it in its own way", 0.74, 0.74, graded=True),
    World("two-kinds", "items have it in one or the other", 0.9, 0.9, two_kinds=True),
    World(
        "strength-visible",
        "items differ fourfold in strength, and states tell it",
        question=0.52,
        answer=0.52,
        strength_range=4.0,
        strength_visible=True,
    ),
    World("strength-hidden", "the same, not told", 0.52, 0.52, strength_range=4.0),
    World("noise-only", "cut and control only add noise", 0.52, 0.52, noise_only=True),
    World("heavy-tails", "noise of heavy tails", 0.7, 0.7, heavy_tails=True),
    World("outliers", "some directions are huge", 0.52, 0.52, outliers=True),
    World("groups-24", "24 groups that share noise", 0.52, 0.52, n_groups=24),
    World("groups-12", "12 groups: too few", 0.52, 0.52, n_groups=12),
    World("recoded", "nothing lost, read in another form", 0.52, 0.52, recoded=True),
)
WORLDS: dict[str, World] = {world.name: world for world in _ALL}
"""All worlds by name."""

Columns = Float[np.ndarray, "replica item feature"]


class Features(NamedTuple):
    """What tells something in each state, before nuisance and rotation."""

    labels: Bool[np.ndarray, " item"]
    groups: Int[np.ndarray, " item"]
    clean: Columns
    before: Columns
    cut: Columns
    control: Columns


class States(NamedTuple):
    """States as a model would give them, [replica, item, d_model]."""

    labels: Bool[np.ndarray, " item"]
    groups: Int[np.ndarray, " item"]
    clean: Tensor
    before: Tensor
    cut: Tensor
    control: Tensor


def draw_features(
    world: World, n_items: int, replicas: int, rng: np.random.Generator
) -> Features:
    """Draws what tells something of every item; labels and groups are the same in all replicas."""
    shape = (replicas, n_items)
    groups = np.arange(n_items) % (world.n_groups or n_items)
    labels = _labels(world, n_items)
    sign = np.where(labels, 1.0, -1.0)
    strength = world.strength_range ** rng.uniform(-0.5, 0.5, shape)
    divided = rng.uniform(0, 1, shape)
    if world.two_kinds:
        divided = np.round(divided)
    common = _noise(world, groups, shape, rng)
    of_question = _partly(world, common, groups, rng)
    of_answer = _partly(world, common, groups, rng)
    told = strength * sign
    question = world.question * told
    answer = world.answer * told
    if world.graded or world.two_kinds:
        question *= np.sqrt(2 * divided)
        answer *= np.sqrt(2 * (1 - divided))
    question += of_question
    answer += of_answer
    match = world.match * told + _noise(world, groups, shape, rng)
    first = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
    first_seen = first + _SIGN_NOISE * rng.standard_normal(shape)
    second_seen = first * sign + _SIGN_NOISE * rng.standard_normal(shape)
    seen = []
    if world.strength_visible:
        seen.append(np.log(strength))
    if world.two_kinds:
        seen.append(3 * (divided - 0.5) + rng.standard_normal(shape))
    clean = np.stack([question, answer, match, first_seen, second_seen, *seen], axis=-1)
    before = np.stack([question, first_seen, *seen], axis=-1)
    cut = np.stack([answer, second_seen, *seen], axis=-1)
    control = clean
    if world.noise_only:
        cut = clean + rng.standard_normal(clean.shape)
        control = clean + rng.standard_normal(clean.shape)
    if world.recoded:
        turned = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
        told_elsewhere = np.stack([question * turned, turned], axis=-1)
        cut = np.concatenate([clean[..., 1:], told_elsewhere], axis=-1)
    return Features(labels, groups, clean, before=before, cut=cut, control=control)


def _labels(world: World, n_items: int) -> Bool[np.ndarray, " item"]:
    """True answers are spread evenly over groups."""
    rank = np.arange(n_items) // (world.n_groups or 1)
    so_far = np.floor(rank * world.true_share + 1e-9)
    return np.floor((rank + 1) * world.true_share + 1e-9) > so_far


def _noise(
    world: World,
    groups: Int[np.ndarray, " item"],
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    if world.heavy_tails:
        own = rng.standard_t(3, shape)
    else:
        own = rng.standard_normal(shape)
    if world.n_groups is None:
        return own
    of_groups = rng.standard_normal((shape[0], world.n_groups))
    return np.asarray(np.sqrt(0.5) * (own + of_groups[:, groups]))


def _partly(
    world: World,
    common: NDArray[np.float64],
    groups: Int[np.ndarray, " item"],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Noise that shares a part with others."""
    own = _noise(world, groups, (common.shape[0], common.shape[1]), rng)
    shared = np.sqrt(world.shared_noise) * common
    return np.asarray(shared + np.sqrt(1 - world.shared_noise) * own)


def draw_states(
    world: World, n_items: int, replicas: int, rng: np.random.Generator
) -> States:
    """Draws items and mixes what tells something with nuisance, by one rotation for each kind of state."""
    features = draw_features(world, n_items, replicas, rng)
    deviation = 1.5 * (1 + np.arange(WIDTH)) ** -0.5
    if world.outliers:
        deviation[:_N_OUTLIERS] = _OUTLIER_SCALE

    def nuisance() -> Columns:
        return rng.standard_normal((replicas, n_items, WIDTH)) * deviation

    own = nuisance()
    before = nuisance()
    cut = nuisance()
    control = nuisance()
    before[..., ::3] = own[..., ::3]
    cut[..., ::2] = own[..., ::2]
    control[..., ::2] = own[..., ::2]
    if world.noise_only:
        cut = own + nuisance()
        control = own + nuisance()

    def mixed(telling: Columns, rest: Columns) -> Tensor:
        columns = np.concatenate([telling, rest], axis=-1)
        width = columns.shape[-1]
        rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
        return torch.from_numpy((columns @ rotation).astype(np.float32))

    return States(
        features.labels,
        features.groups,
        clean=mixed(features.clean, own),
        before=mixed(features.before, before),
        cut=mixed(features.cut, cut),
        control=mixed(features.control, control),
    )


@dataclass(frozen=True)
class Truth:
    """What is so in a world."""

    parts: dict[str, float]
    probe_auc: float
    """Of the best linear probe."""


def find_truth(
    world: World, rng: np.random.Generator, n_items: int = N_ENDLESS
) -> Truth:
    """The parts from one large draw, by least squares."""
    many = replace(world, n_groups=n_items // _OF_A_GROUP) if world.n_groups else world
    features = draw_features(many, n_items, 1, rng)
    labels = features.labels
    cut = features.cut[0]
    before = features.before[0]
    z = _best_probe(features.clean[0], labels)
    needs_question = _linear_need(z, cut, labels)
    needs_answer = _linear_need(z, before, labels)
    together = _linear_need(z, np.concatenate([cut, before], axis=-1), labels)
    parts = four_parts(needs_question, needs_answer, together)
    needs = {NEEDS_QUESTION: needs_question, NEEDS_ANSWER: needs_answer}
    return Truth(parts | needs, float(auc(z, labels)))


def _best_probe(
    states: NDArray[np.float64], labels: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Log-odds by logistic regression without a penalty (Newton's method)."""
    columns = np.column_stack([states, np.ones(len(states))])
    weight = np.zeros(columns.shape[1])
    for _ in range(_NEWTON_STEPS):
        likely = expit(columns @ weight)
        curvature = (columns * (likely * (1 - likely))[:, None]).T @ columns
        slope = columns.T @ (labels - likely)
        weight += np.linalg.lstsq(curvature, slope, rcond=None)[0]
    return np.asarray(columns @ weight)


def _linear_need(
    z: NDArray[np.float64], view: NDArray[np.float64], labels: NDArray[np.bool_]
) -> float:
    sign = np.where(labels, 1.0, -1.0)
    targets = np.column_stack([sign, z])
    columns = np.column_stack([view, np.ones(len(view))])
    left = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    after = (left[:, 0] @ left[:, 1]) / (left[:, 0] @ left[:, 0])
    covariance = np.cov(sign, z)
    return float(after / (covariance[0, 1] / covariance[0, 0]))
