"""Baselines that look at no state: the relation's share of true answers, and the words of question and answer."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch

from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.single import DetectorFit
from anchorscope.evidence.scores import fit_logistic

_PRIOR = 1.0  # true and false answers that every relation is taken to have beforehand


def fit_relation(data: TrainingData, relations: Sequence[str | None]) -> DetectorFit:
    """Log-odds of a relation's true answers in the training set."""
    names, member = np.unique([name or "" for name in relations], return_inverse=True)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(member), len(names)).float().to(data.device)
    weights, targets = data.training.fitted_on(data.device), data.training.targets(data.device)[:, None]
    true, false = (weights * targets) @ one_hot + _PRIOR, (weights * (1 - targets)) @ one_hot + _PRIOR
    return DetectorFit(data.training.assemble((true / false).log() @ one_hot.T), None)


def fit_words(data: TrainingData, documents: Sequence[Sequence[str]]) -> DetectorFit:
    """Logistic regression on the bag of words; each document is an item's words."""
    vocabulary = {word: place for place, word in enumerate(sorted({word for one in documents for word in one}))}
    rows = [place for place, one in enumerate(documents) for _ in set(one)]
    columns = [vocabulary[word] for one in documents for word in sorted(set(one))]
    present = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(documents), max(1, len(vocabulary))))
    weights = data.training.fitted_on(torch.device("cpu")).numpy() > 0
    found = np.zeros((*weights.shape[:2], len(documents)), np.float32)
    for number, fits in enumerate(weights):
        for place, learned in enumerate(fits):
            weight, intercept = fit_logistic(present[learned], data.training.labels[number][learned])
            found[number, place] = present @ weight + intercept
    return DetectorFit(data.training.assemble(torch.from_numpy(found)).to(data.device), None)
