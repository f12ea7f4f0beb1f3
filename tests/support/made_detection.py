"""A made world for detectors: states whose truth is known to lie along a direction, and a cut that takes half of it."""

import numpy as np
import torch

from anchorscope.catalogue import boost_name
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.evaluation import Plan, TrainedOn
from anchorscope.detectors.features import CLEAN, CONFIDENCE, Features, text_columns
from anchorscope.detectors.fits import DetectorFits
from anchorscope.detectors.training import Dataset, Training, nested_sets, whole_set

RUNS = (
    CLEAN,
    "knockout",
    "question-only",
    "answer-mean",
    "random-weights",
    *(
        boost_name(side, alpha)
        for side in ("question", "answer")
        for alpha in (1.0, 3.0)
    ),
)
LAYERS, WIDTH = (3, 4), 12
COLUMNS = (
    *CONFIDENCE,
    "answer_tokens",
    "rauq",
    "p_true",
    "self_consistency_5",
    "self_consistency_10",
    "semantic_entropy_5",
    "semantic_entropy_10",
    "eigen_score_10",
)


def made_dataset(
    n: int = 120,
    seed: int = 0,
    signal: float = 1.5,
    name: str = "made",
    shift: float = 0.0,
) -> Dataset:
    """Items of both kinds, three relations, groups of two; `signal` parts true from false, `shift` moves all states."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2 == 0
    truth = np.where(labels, 1.0, -1.0)
    direction = np.linspace(1, -1, WIDTH)
    states = {}
    for place, run in enumerate(RUNS):
        share = 0.0 if run == "random-weights" else 0.5 if run == "knockout" else 1.0
        for site in ("mlp", "residual") if run == CLEAN else ("mlp",):
            for layer in LAYERS:
                own = np.random.default_rng(
                    [seed, 7 if run != "random-weights" else place, layer]
                )
                noise = own.normal(size=(n, WIDTH)) + 0.1 * rng.normal(size=(n, WIDTH))
                values = (
                    noise * 2
                    + signal
                    * share
                    * truth[:, None]
                    * direction
                    / np.linalg.norm(direction)
                    + shift
                )
                states[run, site, layer] = torch.from_numpy(values.astype(np.float32))
    columns = {column: rng.normal(size=n) + 0.5 * signal * truth for column in COLUMNS}
    relations = [f"relation {place % 3}" for place in range(n)]
    names = [f"{name} {place}" for place in range(n)]
    words = rng.integers(30, size=(n, 2))
    questions, answers = ([f"word {word}" for word in side] for side in words.T)
    keys = [frozenset({f"{name} question {place // 2}"}) for place in range(n)]
    natural = np.where(labels, 1.0, 3.0)
    columns |= text_columns(questions, answers)
    features = Features(n, states, columns)
    return Dataset(
        name, features, labels, np.arange(n) // 2, relations, names, natural, keys
    )


def made_fits(dataset: Dataset | None = None, seeds: int = 1) -> DetectorFits:
    """Detectors over two folds of a made dataset and over all of it."""
    data = dataset or made_dataset()
    sets = [nested_sets(data, 2, seed, "made") for seed in range(seeds)]
    training = Training.together([*sets, whole_set(data, 0, "made")])
    return DetectorFits(
        TrainingData(data.features, training, "mlp", torch.device("cpu")), data
    )


def made_trained(
    dataset: Dataset | None = None, tosses: int = 0, seeds: int = 2
) -> TrainedOn:
    return TrainedOn(
        dataset or made_dataset(),
        "mlp",
        Plan(folds=2, seeds=seeds, tosses=tosses),
        torch.device("cpu"),
    )
