"""Worlds whose parts are known, and the code of a run on them: bias, coverage and false alarms, over replicas.

A clean state holds a question feature, an answer feature and a match, each the label times a strength plus noise, among
directions that tell nothing. The state before the answer has the question's feature, the state with the key words cut
the answer's, and neither the match: the product of a sign in the question and one in the answer. Each state shares some
nuisance with the clean one; a control cut takes nuisance only. The truth is what an endless sample would give: the best
linear probe, and need(V) by least squares.

A world is passed where every part is off by at most 0.03 on average, intervals hold the truth at least 93 times in 100,
and what is not there (a match, or a difference to an equal control) is claimed at most 5 times in 100. Replicas whose
intervals are wider than the scale are left out, as in a report. Few replicas can miss a mark by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.special import expit, stdtrit
from torch import Tensor

from anchorscope.artefacts.schema import WORLDS_SCHEMA
from anchorscope.evidence_parts.need import Share
from anchorscope.evidence_parts.parts import (
    CUT,
    NEEDS_ANSWER,
    NEEDS_QUESTION,
    PARTS,
    TOGETHER,
    EvidenceItems,
    EvidenceSolver,
    evidence_parts,
    four_parts,
)
from anchorscope.evidence_parts.principal import default_directions, principal_states
from anchorscope.progress import Progress, Silent
from anchorscope.report.wording import count, listing, number
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import LEVEL, Estimate, estimate_share
from anchorscope.stats.streams import stream

WIDTH = 120
"""Directions of a state that tell nothing."""
N_ENDLESS = 200_000
"""Items that stand for endlessly many."""
_NEWTON_STEPS = 8
_OF_A_GROUP = 40  # items, where there are endlessly many groups
_SIGN_NOISE = 0.3  # of the two signs whose product is the match
_OUTLIER_SCALE, _N_OUTLIERS = 50.0, 3


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
        "half-auc-0.62",
        "half of the evidence in the question, half in the answer; a weak probe",
        0.15,
        0.15,
    ),
    World("half", "the same, AUC 0.85", 0.52, 0.52),
    World("half-auc-0.98", "the same, a strong probe", 1.03, 1.03),
    World("true-10", "half and half, few true answers", 0.52, 0.52, true_share=0.1),
    World("true-90", "half and half, few false answers", 0.52, 0.52, true_share=0.9),
    World("question", "all of it in the question", 0.74),
    World("answer", "all of it in the answer", 0.0, 0.74),
    World(
        "redundant-0.5",
        "half and half with noise in common",
        0.6,
        0.6,
        shared_noise=0.5,
    ),
    World(
        "redundant-0.9",
        "half and half with nearly the same noise",
        0.7,
        0.7,
        shared_noise=0.9,
    ),
    World(
        "same",
        "question and answer tell one and the same thing",
        0.74,
        0.74,
        shared_noise=1.0,
    ),
    World("match", "only question and answer together tell it", match=0.74),
    World("thirds", "question, answer and match a third each", 0.43, 0.43, 0.43),
    World(
        "graded",
        "every item divides its evidence in a way of its own",
        0.74,
        0.74,
        graded=True,
    ),
    World(
        "two-kinds",
        "half of the items have all of it in the question, half in the answer",
        0.9,
        0.9,
        two_kinds=True,
    ),
    World(
        "strength-visible",
        "items differ fourfold in strength, and states tell it",
        0.52,
        0.52,
        strength_range=4.0,
        strength_visible=True,
    ),
    World(
        "strength-hidden",
        "items differ fourfold in strength",
        0.52,
        0.52,
        strength_range=4.0,
    ),
    World(
        "noise-only",
        "cut and control add noise and take nothing: their difference is 0",
        0.52,
        0.52,
        noise_only=True,
    ),
    World(
        "heavy-tails",
        "half and half with noise of heavy tails",
        0.7,
        0.7,
        heavy_tails=True,
    ),
    World(
        "outliers",
        "half and half among a few directions fifty times as large",
        0.52,
        0.52,
        outliers=True,
    ),
    World(
        "groups-24",
        "half and half in 24 groups that share noise",
        0.52,
        0.52,
        n_groups=24,
    ),
    World(
        "groups-12",
        "half and half in 12 groups: fewer than a report asks for",
        0.52,
        0.52,
        n_groups=12,
    ),
    World(
        "recoded", "nothing is lost, but read in another form", 0.52, 0.52, recoded=True
    ),
)
WORLDS: dict[str, World] = {world.name: world for world in _ALL}
"""All worlds by name."""

Columns = Float[np.ndarray, "replica item feature"]


@dataclass(frozen=True)
class Features:
    """What tells something in each state, before nuisance and rotation."""

    labels: Bool[np.ndarray, " item"]
    groups: Int[np.ndarray, " item"]
    clean: Columns
    before: Columns
    cut: Columns
    control: Columns


@dataclass(frozen=True)
class States:
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
    rank = np.arange(n_items) // (
        world.n_groups or 1
    )  # true answers are spread evenly over groups
    labels = np.floor((rank + 1) * world.true_share + 1e-9) > np.floor(
        rank * world.true_share + 1e-9
    )
    sign = np.where(labels, 1.0, -1.0)

    def noise() -> NDArray[np.float64]:
        own = (
            rng.standard_t(3, shape)
            if world.heavy_tails
            else rng.standard_normal(shape)
        )
        if world.n_groups is None:
            return own
        return np.sqrt(0.5) * (
            own + rng.standard_normal((replicas, world.n_groups))[:, groups]
        )

    strength = world.strength_range ** rng.uniform(-0.5, 0.5, shape)
    divided = rng.uniform(0, 1, shape)
    if world.two_kinds:
        divided = np.round(divided)
    common = noise()
    of_question, of_answer = (
        np.sqrt(world.shared_noise) * common + np.sqrt(1 - world.shared_noise) * noise()
        for _ in range(2)
    )
    is_divided = world.graded or world.two_kinds
    weights = (
        (np.sqrt(2 * divided), np.sqrt(2 * (1 - divided))) if is_divided else (1.0, 1.0)
    )
    question = world.question * weights[0] * strength * sign + of_question
    answer = world.answer * weights[1] * strength * sign + of_answer
    match = world.match * strength * sign + noise()
    first = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
    first_seen, second_seen = (
        side + _SIGN_NOISE * rng.standard_normal(shape)
        for side in (first, first * sign)
    )
    seen = [np.log(strength)] if world.strength_visible else []
    seen += (
        [3 * (divided - 0.5) + rng.standard_normal(shape)] if world.two_kinds else []
    )
    clean = np.stack([question, answer, match, first_seen, second_seen, *seen], axis=-1)
    before = np.stack([question, first_seen, *seen], axis=-1)
    cut = np.stack([answer, second_seen, *seen], axis=-1)
    control = clean
    if world.noise_only:
        cut, control = (clean + rng.standard_normal(clean.shape) for _ in range(2))
    if world.recoded:
        turned = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
        cut = np.concatenate(
            [clean[..., 1:], (question * turned)[..., None], turned[..., None]], axis=-1
        )
    return Features(labels, groups, clean, before, cut, control)


def draw_states(
    world: World,
    n_items: int,
    replicas: int,
    rng: np.random.Generator,
    width: int = WIDTH,
) -> States:
    """Draws items and mixes what tells something with nuisance, by one rotation for each kind of state."""
    features = draw_features(world, n_items, replicas, rng)
    deviation = 1.5 * (1 + np.arange(width)) ** -0.5
    if world.outliers:
        deviation[:_N_OUTLIERS] = _OUTLIER_SCALE

    def nuisance() -> Columns:
        return rng.standard_normal((replicas, n_items, width)) * deviation

    own = nuisance()
    before, cut, control = nuisance(), nuisance(), nuisance()
    before[..., ::3], cut[..., ::2], control[..., ::2] = (
        own[..., ::3],
        own[..., ::2],
        own[..., ::2],
    )
    if world.noise_only:
        cut, control = own + nuisance(), own + nuisance()
    states = []
    for telling, rest in (
        (features.clean, own),
        (features.before, before),
        (features.cut, cut),
        (features.control, control),
    ):
        columns = np.concatenate([telling, rest], axis=-1)
        rotation = np.linalg.qr(rng.standard_normal((columns.shape[-1],) * 2))[0]
        states.append(torch.from_numpy((columns @ rotation).astype(np.float32)))
    return States(features.labels, features.groups, *states)


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
    z, labels = _best_probe(features.clean[0], features.labels), features.labels
    cut, before = features.cut[0], features.before[0]
    needs_question, needs_answer = (
        _linear_need(z, cut, labels),
        _linear_need(z, before, labels),
    )
    together = _linear_need(z, np.concatenate([cut, before], axis=-1), labels)
    needs = {NEEDS_QUESTION: needs_question, NEEDS_ANSWER: needs_answer}
    return Truth(
        four_parts(needs_question, needs_answer, together) | needs,
        float(auc(z, labels)),
    )


def _best_probe(
    states: NDArray[np.float64], labels: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Log-odds by logistic regression without a penalty (Newton's method)."""
    columns = np.column_stack([states, np.ones(len(states))])
    weight = np.zeros(columns.shape[1])
    for _ in range(_NEWTON_STEPS):
        likely = expit(columns @ weight)
        curvature = (columns * (likely * (1 - likely))[:, None]).T @ columns
        weight += np.linalg.lstsq(curvature, columns.T @ (labels - likely), rcond=None)[
            0
        ]
    return np.asarray(columns @ weight)


def _linear_need(
    z: NDArray[np.float64], view: NDArray[np.float64], labels: NDArray[np.bool_]
) -> float:
    sign = np.where(labels, 1.0, -1.0)
    targets = np.column_stack([sign, z])
    columns = np.column_stack([view, np.ones(len(view))])
    left = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    covariance = np.cov(sign, z)
    return float(
        (left[:, 0] @ left[:, 1])
        / (left[:, 0] @ left[:, 0])
        / (covariance[0, 1] / covariance[0, 0])
    )


MOST_BIAS, LEAST_COVERAGE, MOST_ALARMS = 0.03, 0.93, 0.05
"""The marks."""
SIZES = {360: 6, 1000: 3}
"""Items of a replica, and how many replicas there are where none are asked for."""
_WIDEST = 0.5  # half of the widest interval that a report speaks of
AT_ONCE = 16
"""Replicas that are drawn and solved together."""
_ABSENT = 0.005  # a share below it is one that is not there: the truth comes from a finite draw


@dataclass(frozen=True)
class Marks:
    """A world at one number of items, over all replicas."""

    world: str
    n: int
    """Items of a replica."""
    values: dict[tuple[str, str], Estimate]
    """By quantity and part; n of each is the number of values that it rests on."""
    passes: bool


@dataclass(frozen=True)
class WorldResults:
    """What came out of the worlds."""

    truths: dict[str, Truth]
    marks: tuple[Marks, ...]
    """Per world and number of items."""


def run_worlds(
    replicas: int | None = None,
    n: int | Sequence[int] = tuple(SIZES),
    device: str | torch.device = "cpu",
    seed: int = 0,
    names: Sequence[str] = tuple(WORLDS),
    progress: Progress | None = None,
    endless: int = N_ENDLESS,
) -> WorldResults:
    """Every world at every number of items; `replicas` of each, by default those of `SIZES`."""
    sizes = (n,) if isinstance(n, int) else tuple(n)
    listener = progress or Silent()
    listener.start("worlds", len(names) * len(sizes))
    truths = {
        name: find_truth(WORLDS[name], stream(seed, "world truth", name), endless)
        for name in names
    }
    marks = []
    for size in sizes:
        usual = SIZES[min(SIZES, key=lambda usual_size: abs(usual_size - size))]
        for name in names:
            batches = [
                measure_batch(
                    WORLDS[name], truths[name], size, start, number, device, seed
                )
                for start in range(0, replicas or usual, AT_ONCE)
                for number in [min(AT_ONCE, (replicas or usual) - start)]
            ]
            marks.append(mark_world(name, size, truths[name], join_batches(batches)))
            listener.advance(1)
    listener.finish()
    return WorldResults(truths, tuple(marks))


Values = dict[tuple[str, str], list[float]]
"""One number per replica, by quantity and part."""


def measure_batch(
    world: World,
    truth: Truth,
    n_items: int,
    start: int,
    replicas: int,
    device: str | torch.device,
    seed: int,
) -> Values:
    """Some replicas of a world, from number `start` on: the same numbers in any order of the batches."""
    rng = stream(seed, "world", world.name, str(n_items), str(start))
    measured = measure_replicas(
        draw_states(world, n_items, replicas, rng), truth, device, seed
    )
    return {key: numbers.tolist() for key, numbers in measured.items()}


def join_batches(batches: Sequence[Values]) -> Values:
    """Batches of one world, one after the other."""
    return {
        key: [number for batch in batches for number in batch[key]]
        for key in batches[0]
    }


def measure_replicas(
    states: States, truth: Truth, device: str | torch.device = "cpu", seed: int = 0
) -> dict[tuple[str, str], np.ndarray]:
    """Bias, coverage and claims of every part, [replica]."""
    n_items = len(states.labels)
    names = [str(index) for index in range(n_items)]
    items = EvidenceItems(states.labels, states.groups, [None] * n_items, names, seed)
    views = (states.clean, states.before, states.cut, states.control)
    clean, before, cut, control = (
        principal_states(view, default_directions(*view.shape[1:]), device)
        for view in views
    )
    solver = EvidenceSolver(clean, items, device, Silent())
    needs = solver.needs(cut, before)
    shares = evidence_parts(needs)
    half_widths = {
        part: share.half_width(*items.levels) for part, share in shares.items()
    }
    spoken = np.all([half_widths[part] <= _WIDEST for part in PARTS], axis=0)
    measured: dict[tuple[str, str], np.ndarray] = {}
    for part, share in shares.items():
        error = np.where(spoken, share.value - truth.parts[part], np.nan)
        measured["bias", part] = error
        measured["covered", part] = np.where(
            spoken, np.abs(error) <= half_widths[part], np.nan
        )
    measured["claimed", TOGETHER] = _is_above_zero(shares[TOGETHER], items)
    difference = (
        shares[NEEDS_QUESTION]
        - evidence_parts({CUT: solver.terms(control, "control")})[NEEDS_QUESTION]
    )
    measured["difference", NEEDS_QUESTION] = difference.value
    measured["claimed", "difference"] = _is_above_zero(difference, items)
    measured["spoken", "all parts"] = spoken.astype(float)
    measured["auc", "probe"] = np.array(
        [float(auc(scores, states.labels)) for scores in solver.scores()]
    )
    measured["ratio of sums", NEEDS_QUESTION] = needs[CUT].lost.sum(-1) / needs[
        CUT
    ].had.sum(-1)  # Λ, for the record
    return measured


def _is_above_zero(share: Share, items: EvidenceItems) -> np.ndarray:
    return (share.value > share.half_width(*items.levels)).astype(float)


def mark_world(world: str, n: int, truth: Truth, values: Values) -> Marks:
    """Means over replicas, and whether the world is passed."""
    marks = {
        key: _mean(numbers, key[0] in ("covered", "claimed", "spoken"))
        for key, numbers in values.items()
    }
    pooled = [number for part in PARTS for number in values["covered", part]]
    marks["covered", "all parts"] = _mean(pooled, True)
    absent = {
        TOGETHER: truth.parts[TOGETHER] < _ABSENT,
        "difference": WORLDS[world].noise_only,
    }
    alarms = [
        number
        for part, is_absent in absent.items()
        if is_absent
        for number in values["claimed", part]
    ]
    if alarms:
        marks["false alarms", "all parts"] = _mean(alarms, True)
    passes = (
        max(abs(marks["bias", part].value) for part in PARTS) <= MOST_BIAS
        and marks["covered", "all parts"].value >= LEAST_COVERAGE
        and (not alarms or marks["false alarms", "all parts"].value <= MOST_ALARMS)
    )
    return Marks(world, n, marks, passes)


def _mean(values: Sequence[float], is_rate: bool) -> Estimate:
    """The mean over replicas; Wilson's interval of a rate, Student's of anything else."""
    numbers = np.array([value for value in values if np.isfinite(value)])
    n = len(numbers)
    if not n:
        return Estimate(
            np.nan, np.nan, np.nan, 0, "no replica with a share that may be reported"
        )
    if is_rate:
        return estimate_share(int(numbers.sum()), n, "replicas")
    value = float(numbers.mean())
    if n == 1:
        return Estimate(value, np.nan, np.nan, 1, "one replica")
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * numbers.std(ddof=1) / np.sqrt(n))
    return Estimate(
        value, value - half, value + half, n, "mean over replicas, Student's interval"
    )


def worlds_table(results: WorldResults) -> pl.DataFrame:
    """worlds.csv: one row per world, number of items, quantity and part; what is so in a world comes first."""
    rows: list[tuple[Any, ...]] = []
    for world, truth in results.truths.items():
        facts = {("truth", part): value for part, value in truth.parts.items()} | {
            ("auc", "best"): truth.probe_auc
        }
        for (quantity, part), value in facts.items():
            rows.append(
                (
                    world,
                    None,
                    quantity,
                    part,
                    value,
                    None,
                    None,
                    None,
                    None,
                    "from one large draw",
                )
            )
    for mark in results.marks:
        for (quantity, part), e in mark.values.items():
            low, high = (
                end if np.isfinite(end) else None for end in (e.ci_low, e.ci_high)
            )
            rows.append(
                (
                    mark.world,
                    mark.n,
                    quantity,
                    part,
                    e.value,
                    low,
                    high,
                    e.n,
                    mark.passes,
                    e.method,
                )
            )
    return pl.DataFrame(rows, schema=WORLDS_SCHEMA, orient="row")


def worlds_summary(results: WorldResults) -> dict[str, dict[str, Any]]:
    """For programs: per world and number of items what came out."""
    summary: dict[str, dict[str, Any]] = {}
    for mark in results.marks:
        numbers = {
            f"{quantity}, {part}": e.value
            for (quantity, part), e in mark.values.items()
        }
        replicas = mark.values["bias", TOGETHER].n
        summary.setdefault(mark.world, {})[str(mark.n)] = {
            "passes": mark.passes,
            "replicas": replicas,
            **numbers,
        }
    return summary


def worlds_sentences(results: WorldResults) -> list[str]:
    """The summary of the page."""
    sentences = []
    for size in sorted({mark.n for mark in results.marks}):
        marks = [mark for mark in results.marks if mark.n == size]
        failed = [mark.world for mark in marks if not mark.passes]
        worst = max(
            abs(mark.values["bias", part].value) for mark in marks for part in PARTS
        )
        beside = f"; not in: {listing(failed)}" if failed else ""
        sentences.append(
            f"With {count(size)} items the four parts pass in {len(marks) - len(failed)} of {len(marks)} worlds whose "
            f"parts are known{beside}. The largest bias of a part is {number(worst, 2)}."
        )
    return sentences
