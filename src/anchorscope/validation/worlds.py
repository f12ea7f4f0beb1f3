"""The worlds: what is planted in the states of items, what makes it hard to find, and what is so in each.

Every item's state holds evidence for its label in a question part and an answer part, each with noise of its own.
Worlds differ in how the evidence is divided between the parts, in what else of the state tells how it is divided, and
in what goes wrong. A world's *twin* looks the same and has one pathway: all that is tied to the pathways is there, but
every item has half of its evidence in each part. A rule that finds two groups in a twin is wrong.

A state is a set of independent directions, mixed by a rotation: both parts' evidence, what leans with the item's kind,
the relation's codes, and nuisance that tells nothing. The cut redraws the question's evidence, the question's code of
the relation and half of the nuisance, and moves all items alike towards "false", as cuts of real models do. A random
cut redraws a few directions of nuisance. Labels and relations are the same in all replicas.

The truth is what an endless sample would tell. The share is Λ by its definition, with the best linear probe and the
best linear explanation from the cut state; of Gaussian evidence in both parts it is
[μ_q²/(1 + μ_a²)] / (μ_q² + μ_a²): evidence that both parts have counts as the answer's. The ceiling is the AUC, within
true and within false answers, of the likelihood ratio of both kinds: what it doesn't reach is not asked of a rule.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logsumexp
from scipy.stats import norm
from torch import Tensor

from anchorscope.stats.auc import auc

HALF = 0.5
"""Share of the evidence in the question part where there is one pathway."""
N_RELATIONS = 8
"""Relations of the world that has some."""

Division = Literal["half", "two", "graded"]
"""Every item half and half; all of it in one part; a share of its own for every item."""


@dataclass(frozen=True)
class World:
    """What is planted."""

    name: str
    about: str
    """One line: what makes it hard."""
    division: Division = "two"
    """How an item's evidence is divided between question and answer."""
    strength: float = 1.28
    """Size of an item's whole evidence, in standard deviations of the noise of a part."""
    visible: float = 1.0
    """How far the state leans, in one direction that no cut touches, with the item's kind; 0 where it does not."""
    hidden: float = 0.0
    """How far it leans in two directions whose *signs together* tell the kind, and neither alone."""
    question_true: float = 0.5
    """Share of question items among true answers; among false ones it is 1 less this."""
    label_noise: float = 0.0
    """Share of labels that say the opposite of the evidence."""
    by_relation: bool = False
    """Whether relations decide how likely an item is true, and how likely it is a question item."""
    missed: float = 0.0
    """Share of the key tokens that the cut misses."""

    @property
    def has_kinds(self) -> bool:
        """Whether items differ in their pathway."""
        return self.division != "half"

    @property
    def twin(self) -> "World":
        """The same with one pathway: the evidence as strong for the probe, and divided evenly in every item."""
        # A probe weighs both parts alike; an item with all of its evidence in one of them has noise from the other.
        strength = self.strength / np.sqrt(2) if self.division == "two" else self.strength
        return replace(self, division="half", strength=float(strength))

    def shares(self, kind: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Share of an item's evidence that is in the question part, by its kind (1: question, 0: answer)."""
        return np.full_like(kind, HALF) if self.division == "half" else kind

    def log_odds_shares(self, kind: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Share of an item's log-odds that the question part contributes, to a probe that weighs both parts alike."""
        question = np.sqrt(self.shares(kind))
        return question / (question + np.sqrt(1 - self.shares(kind)))


_ALL = (
    World(
        "one-pathway",
        "every item takes half of its evidence from the question and half from the answer",
        "half",
        0.65,
        visible=0.0,
    ),
    World("two-pathway", "two kinds of items, and a direction that tells them apart in 92 of 100 pairs"),
    World(
        "80/20", "the same; four of five question items are true, four of five answer items false", question_true=0.8
    ),
    World(
        "weak", "the same; a tenth of the labels are wrong and the probe's AUC is 0.8", strength=1.13, label_noise=0.1
    ),
    World("hidden", "two kinds that only a combination of two directions tells apart", visible=0.0, hidden=2.0),
    World("graded", "every item has a share of its own, drawn from a Beta distribution", "graded", 0.9),
    World(
        "relation",
        "relations are tied to pathway and truth; question and answer tell the relation",
        visible=0.0,
        by_relation=True,
    ),
    World("missed", "names of several tokens, of which the cut misses a fifth", missed=0.2),
)
WORLDS: dict[str, World] = {one.name: one for one in _ALL}
"""All worlds by name."""


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


N_ENDLESS = 300_000
"""Items that stand for endlessly many: a share is then off by about 0.003."""
_FOR_CEILING = 40_000  # of them, from which the ceiling is computed
_NEWTON_STEPS = 7
_GRADES = 21  # shares that the ceiling of graded worlds is summed over

Columns = Float[np.ndarray, "item direction"]


@dataclass(frozen=True)
class Truth:
    """What is so in a world."""

    share: float
    """Λ of the cut that is made."""
    whole_share: float
    """Λ of a cut that misses nothing."""
    probe_auc: float
    """AUC of the best linear probe."""
    ceiling: tuple[float, float]
    """AUC for the kind that can be reached, within true and within false answers; NaN where there are no kinds."""

    @property
    def label_ceiling(self) -> float:
        """What can be reached of Gaussian evidence by whoever knows nothing but the label to refer to."""
        return float(norm.cdf(norm.ppf(self.probe_auc) / 2))


def find_truth(world: World, rng: np.random.Generator, n_items: int = N_ENDLESS) -> Truth:
    """Shares and ceiling, from one large draw."""
    planted = plant(world, n_items, 1, rng)
    log_odds = best_probe(planted.clean[0], planted.labels)
    share = linear_share(log_odds, planted.cut[0], planted.labels)
    whole = share
    if world.missed:
        complete = plant(replace(world, missed=0.0), n_items, 1, rng)
        whole = linear_share(best_probe(complete.clean[0], complete.labels), complete.cut[0], complete.labels)
    return Truth(share, whole, float(auc(log_odds, planted.labels)), _ceiling(world, planted))


def best_probe(states: Columns, labels: Bool[np.ndarray, " item"]) -> Float[np.ndarray, " item"]:
    """Log-odds by logistic regression without a penalty (Newton's method)."""
    columns = np.column_stack([states, np.ones(len(states))])
    weight = np.zeros(columns.shape[1])
    for _ in range(_NEWTON_STEPS):
        sure = expit(columns @ weight)
        curvature = (columns * (sure * (1 - sure))[:, None]).T @ columns
        weight += np.linalg.lstsq(curvature, columns.T @ (labels - sure), rcond=None)[0]
    return columns @ weight


def linear_share(log_odds: Float[np.ndarray, " item"], cut: Columns, labels: Bool[np.ndarray, " item"]) -> float:
    """Σ (s − ŝ)(z − ẑ) / Σ s·z, both explained from the cut states by least squares."""
    sign = np.where(labels, 1.0, -1.0)
    targets = np.column_stack([sign, log_odds])
    columns = np.column_stack([cut, np.ones(len(cut))])
    left = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    return float(left[:, 0] @ left[:, 1] / (sign @ log_odds))


def _ceiling(world: World, planted: Planted) -> tuple[float, float]:
    if not world.has_kinds:
        return float("nan"), float("nan")
    few = slice(_FOR_CEILING)
    planted = Planted(
        planted.labels[few], planted.relations[few], planted.kind[:, few], planted.clean[:, few], planted.cut[:, few]
    )
    belief, kind, true = _posterior_share(world, planted), planted.kind[0] > 0.5, planted.labels
    return float(auc(belief[true], kind[true])), float(auc(belief[~true], kind[~true]))


def _posterior_share(world: World, planted: Planted) -> Float[np.ndarray, " item"]:
    """The expected kind of each item, given its label and all of its directions."""
    graded = world.division == "graded"
    kinds = (np.arange(_GRADES) + 0.5) / _GRADES if graded else np.array([0.0, 1.0])
    likely = question_share_of(world, planted.labels, planted.relations)
    log_p = np.zeros((len(kinds), len(likely)))
    question, answer, *leaning = np.moveaxis(planted.clean[0], -1, 0)
    sign = np.where(planted.labels, 1.0, -1.0)
    for place, kind in enumerate(kinds):
        if not graded:
            log_p[place] += np.log(likely if kind else 1 - likely)
        log_p[place] += _log_evidence(world, kind, sign, question, answer)
        if world.visible:
            log_p[place] += norm.logpdf(leaning[0], world.visible * (2 * kind - 1))
        if world.hidden:
            wanted = 1.0 if kind > 0.5 else -1.0
            ways = [
                norm.logpdf(leaning[0], world.hidden * one) + norm.logpdf(leaning[1], world.hidden * one * wanted)
                for one in (1.0, -1.0)
            ]
            log_p[place] += logsumexp(ways, axis=0)
    posterior = np.exp(log_p - logsumexp(log_p, axis=0))
    return kinds @ posterior


def _log_evidence(
    world: World, kind: float, sign: np.ndarray, question: np.ndarray, answer: np.ndarray
) -> Float[np.ndarray, " item"]:
    """How likely both parts are, given the kind and a label that may be wrong."""
    ways = []
    for turned, often in ((1.0, 1 - world.label_noise), (-1.0, world.label_noise)):
        if often:
            mean = turned * world.strength * sign
            of_parts = norm.logpdf(question, np.sqrt(kind) * mean) + norm.logpdf(answer, np.sqrt(1 - kind) * mean)
            ways.append(np.log(often) + of_parts)
    return logsumexp(ways, axis=0)
