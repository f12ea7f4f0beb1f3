"""Small Gaussian worlds: states that hold evidence for the label in a question part and an answer part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from anchorscope.evidence_parts.half_splits import (
    CleanEvidence,
    Halves,
    clean_evidence,
    make_halves,
)
from anchorscope.evidence_parts.need import Terms, view_terms


@dataclass(frozen=True)
class Case:
    """States of several problems, and who learns from whom."""

    labels: np.ndarray
    clean: torch.Tensor
    cut: torch.Tensor
    halves: Halves

    def evidence(self) -> CleanEvidence:
        return clean_evidence(self.clean, self.halves, self.labels)

    def terms(self, view: torch.Tensor | None = None) -> Terms:
        return view_terms(
            self.evidence(),
            self.cut if view is None else view,
            self.halves,
            self.labels,
        )


MakeCase = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case() -> MakeCase:
    """A case of the given size: `question` and `answer` are the parts' evidence in deviations of their noise."""

    def make(
        n: int,
        width: int,
        question: float,
        answer: float,
        problems: int = 1,
        splits: int = 8,
        seed: int = 0,
        true_share: float = 0.5,
    ) -> Case:
        rng = np.random.default_rng(seed)
        labels = np.arange(n) % 10 < round(10 * true_share)
        sign = np.where(labels, 1.0, -1.0)
        clean = rng.standard_normal((problems, n, width))
        cut = clean.copy()
        cut[..., 0] = rng.standard_normal((problems, n))
        clean[..., 0] += question * sign
        clean[..., 1] += answer * sign
        cut[..., 1] += answer * sign
        halves = make_halves(
            np.arange(n),
            labels.astype(np.int64),
            seed,
            [str(one) for one in range(n)],
            splits,
        )
        return Case(
            labels,
            torch.from_numpy(clean).float(),
            torch.from_numpy(cut).float(),
            halves,
        )

    return make
