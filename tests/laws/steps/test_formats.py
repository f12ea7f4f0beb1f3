"""What a step leaves on disk: the same value is the same bytes, however often it is written, and comes back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.answers.generate import Answer
from anchorscope.evidence.effects import Effect, Measurements
from anchorscope.experiments.experiment import Found, ItemValues, Statistic
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.stats.estimate import Estimate
from anchorscope.steps import make
from anchorscope.steps.job import format_for
from pass_cases import bits

ITEMS, ONES = np.arange(3), np.ones((3, 4))
STATISTIC = Statistic(
    "auc", Estimate(0.5, float("nan"), 1.0, 3, "resampled"), variant="a", layer=2
)
VALUES: dict[Callable[..., Any], Any] = {
    make.probes: {
        name: ProbeSet(
            torch.full((3, 4, 5), float(at)),
            torch.zeros(3, 4),
            ONES.copy(),
            ONES.copy(),
            (),
            (name,),
        )
        for at, name in enumerate(("mlp/final", "attention/final", "residual/final"))
    },
    make.effects_of("knockout"): Measurements(
        [
            Effect(
                "knockout", "all", ITEMS, ITEMS + 1, np.ones((3, 1, 1, 2), np.float32)
            )
        ],
        [Missing("sources", "few")],
    ),
    make.experiment_of(None): Found(
        (STATISTIC,), (ItemValues("shift", ITEMS, ITEMS / 3, "b"),), ("too few",)
    ),  # type: ignore[arg-type]
    make.clean_states: torch.arange(6, dtype=torch.float16).reshape(2, 3).T,
    make.clean_scores: np.arange(6, dtype=np.float32).reshape(2, 3),
    make.principal: {"clean": torch.ones(2), "displacement/random 2": torch.zeros(1)},
    make.source_terms: {},
    make.tables: {
        "curves": pl.DataFrame({"layer": [0, 1], "auc": [0.5, None]}),
        "empty": pl.DataFrame(),
    },
    make.samples: [
        [Answer("one", (1,), None, "answered"), Answer("", (), None, "empty")],
        [],
    ],
    make.log_probs: [(-0.1, -2.0), ()],
}


@pytest.mark.parametrize(
    "make_step", VALUES, ids=lambda make_step: make_step.__qualname__
)
def test_the_same_value_is_the_same_bytes_and_comes_back(
    make_step: Callable[..., Any], tmp_path: Path
) -> None:
    written, form, value = [], format_for(make_step), VALUES[make_step]
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        form.write(value, folder)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert all(files == written[0] for files in written[1:])
    assert bits(form.read(tmp_path / "0")) == bits(value)
