"""The laws run with shapes checked (`SHAPES_CHECKED` in the Makefile): what does not fit its annotation is refused."""

import os
from dataclasses import replace

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation

from anchorscope.probes.logistic import TrainingSets, fit_layers

pytestmark = pytest.mark.skipif(
    "SHAPES_CHECKED" not in os.environ, reason="shapes are not checked: SHAPES_CHECKED"
)

SETS = TrainingSets(
    labels=torch.tensor([True, False] * 6),
    members=torch.ones(2, 12),
    scaled_on=torch.ones(1, 12, dtype=torch.bool),
    scaling=torch.zeros(2, dtype=torch.long),
    strengths=torch.ones(2),
)


def test_a_function_refuses_a_dimension_too_few() -> None:
    states = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(0))
    assert fit_layers(states, SETS).weight.shape == (1, 2, 3)
    with pytest.raises(BeartypeCallHintViolation, match="problem item d_model"):
        fit_layers(states[0], SETS)


def test_a_dataclass_refuses_fields_that_do_not_fit_each_other() -> None:
    with pytest.raises(BeartypeCallHintViolation, match="dimension column is 3"):
        replace(SETS, scaling=torch.zeros(3, dtype=torch.long))
