"""What the tests of bundles and scoring share: a detector of made-up weights on a tiny model."""

from dataclasses import replace
from typing import Any

import torch

from anchorscope.answers.template import make_template
from anchorscope.detectors.bundle import Card, DetectorSetting, TrainedDetector
from anchorscope.detectors.features import StateKey
from anchorscope.detectors.fitted import LinearProbe, TrainingRange, WeightedSum
from anchorscope.models.language_model import LanguageModel
from anchorscope.stats.calibration import Calibration, Threshold

CLEAN: StateKey = ("clean", "mlp", 2)
OTHER: StateKey = ("clean", "residual", 1)
PAIRS = (
    ("Who wrote Dracula?", "Bram Stoker"),
    ("What is the capital of Peru?", "Lima"),
    ("In which year did the long war between the two houses end?", "1485"),
    ("Who painted The Night Watch?", "R"),
    ("What is the capital of France?", "the city of light, Paris, on the river Seine"),
)
"""Questions of different lengths with answers of one token and of many."""


def added(parts: tuple[LinearProbe, ...], columns: tuple[str, ...] = ()) -> WeightedSum:
    """Log-odds of probes, and columns, added up."""
    return WeightedSum(parts, (1.0,) * len(parts), columns, (1.0,) * len(columns), 0.0)


def probe(key: StateKey = CLEAN, seed: int = 0) -> LinearProbe:
    return LinearProbe(
        key, torch.randn(32, generator=torch.Generator().manual_seed(seed)) / 32, 0.25
    )


def setting_of(
    lm: LanguageModel, position: str = "final", prompt: str = "few-shot"
) -> DetectorSetting:
    template = make_template(prompt, lm.tokenizer, lm.needs_bos)
    return DetectorSetting.of(vars(lm.identity()), template, position, max_new_tokens=6)


def trained_on(lm: LanguageModel, **changes: Any) -> TrainedDetector:
    """A probe with all that a bundle can hold; its range is that of random states, wide enough for every item."""
    states = torch.randn(60, lm.d_model, generator=torch.Generator().manual_seed(1))
    span = TrainingRange(
        CLEAN,
        torch.eye(lm.d_model)[:8],
        torch.zeros(8),
        states[:, :8],
        1e9,
        longest=400,
    )
    whole = TrainedDetector(
        "probe",
        probe(),
        Calibration(1.5, -0.2, 0.5),
        setting_of(lm),
        Card(
            "made up",
            ({"metric": "auroc", "value": 0.5, "n": 60},),
            ("none",),
            ("knows nothing",),
            {"anchorscope": "0.1.0"},
        ),
        (Threshold(0.2, 0.1, 0.45, 0.7, 60), Threshold(0.05, 0.1, None, 0.0, 60)),
        span,
    )
    return replace(whole, **changes)
