"""Small Gaussian worlds: states that hold evidence for the label in a question part and an answer part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from anchorscope.probes.folds import grouped_folds
from anchorscope.question_share.evidence import CleanEvidence, Halves, Lost, clean_evidence, lost_evidence, make_halves
from anchorscope.stats.streams import unnamed


@dataclass(frozen=True)
class Case:
    """States of several problems, and who learns from whom."""

    labels: np.ndarray
    clean: torch.Tensor
    cut: torch.Tensor
    halves: Halves
    folds: np.ndarray

    def evidence(self) -> CleanEvidence:
        """The probes of the half splits."""
        return clean_evidence(self.clean, self.halves, self.labels)

    def lost(self, states: torch.Tensor | None = None) -> Lost:
        """What is lost under the cut, or under other states."""
        states = self.cut if states is None else states
        return lost_evidence(self.evidence(), states, self.halves, self.labels, self.folds)


MakeCase = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case() -> MakeCase:
    """A case of the given size: `question` and `answer` are the parts' evidence in deviations of their noise."""

    def make(
        n: int, width: int, question: float, answer: float, problems: int = 1, splits: int = 8, seed: int = 0
    ) -> Case:
        rng = np.random.default_rng(seed)
        labels = np.arange(n) % 2 == 0
        sign = np.where(labels, 1.0, -1.0)
        clean = rng.standard_normal((problems, n, width))
        cut = clean.copy()
        cut[..., 0] = rng.standard_normal((problems, n))
        clean[..., 0] += question * sign
        clean[..., 1] += answer * sign
        cut[..., 1] += answer * sign
        halves = make_halves(np.arange(n), labels.astype(np.int64), seed, [str(one) for one in range(n)], splits)
        folds = grouped_folds(np.arange(n), labels.astype(np.int64), 5, unnamed(seed, "folds", n))
        return Case(labels, torch.from_numpy(clean).float(), torch.from_numpy(cut).float(), halves, folds)

    return make
