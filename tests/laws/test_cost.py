"""What a run costs: told before it begins, from recipe, model, questions and kind of device alone."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from anchorscope.cost import (
    MOST_RANDOM_CUTS,
    DatasetSize,
    ModelSize,
    choose_random_cuts,
    dataset_size,
    run_cost,
    step_costs,
)
from anchorscope.datasets.question import Question
from anchorscope.recipe import Recipe, make_recipe

SMALL = ModelSize(parameters=134_515_008, n_layers=30, width=576)
DEMO = DatasetSize(questions=500, to_answer=500, used=300, tokens=12.0)


def recipe(**options: object) -> Recipe:
    return make_recipe({"device": "cpu", "dtype": "float32", **options})


@pytest.mark.parametrize(
    ("device", "size", "expected"),
    [
        ("cpu", DEMO, 1),
        ("cpu", replace(DEMO, used=60), MOST_RANDOM_CUTS),
        ("cpu", replace(DEMO, used=3_000), 1),
        ("cuda", replace(DEMO, used=3_000), MOST_RANDOM_CUTS),
        ("balanced", replace(DEMO, used=3_000), MOST_RANDOM_CUTS),
    ],
)
def test_random_cuts_are_as_many_as_the_device_has_time_for(
    device: str, size: DatasetSize, expected: int
) -> None:
    chosen = choose_random_cuts(recipe(device=device), SMALL, [size])
    assert chosen.random_cuts == expected
    assert (
        choose_random_cuts(
            recipe(device=device, random_cuts=3), SMALL, [size]
        ).random_cuts
        == 3
    )


def test_supplied_answers_and_labels_are_counted_and_not_guessed() -> None:
    rows = [
        Question(
            "here",
            str(n),
            "Where is the Nile?",
            ("Africa",),
            model_answer="Africa",
            truthful=n < 40,
        )
        for n in range(100)
    ]
    found = dataset_size(rows, recipe(balance="dataset"))
    assert (found.questions, found.to_answer, found.used) == (100, 0, 80)
    assert step_costs(recipe(), SMALL, found)["answers"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_the_rate_is_that_of_the_device_however_busy_it_is(threads: int) -> None:
    chosen = recipe(threads=threads, random_cuts=1)

    def rate() -> float:
        return run_cost(chosen, SMALL, [DEMO], chosen).operations_per_second

    own = torch.get_num_threads()
    quiet = max(rate() for _ in range(3))
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        loaded = max(rate() for _ in range(3))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert loaded > 0.6 * quiet, "the wall clock would give a third or less"
    assert torch.get_num_threads() == own


def test_what_is_fitted_afterwards_and_too_few_answers_are_said() -> None:
    chosen = recipe(random_cuts=1, keep=("states",))
    few = replace(DEMO, used=299)
    enough = replace(DEMO, used=300)
    steps = ("answers", "clean-states")
    alone = run_cost(chosen, SMALL, [few], chosen, steps)
    fitted = [run_cost(chosen, SMALL, [few], chosen, steps, n) for n in (1, 5)]
    assert alone.operations < fitted[0].operations < fitted[1].operations
    assert "fits of detectors included" in fitted[0].sentence
    assert "fits of detectors" not in alone.sentence
    assert "parts of the evidence" not in alone.sentence
    told = run_cost(chosen, SMALL, [few], chosen).sentence
    assert "about 299 used answers in a dataset: its parts of the evidence" in told
    both = run_cost(chosen, SMALL, [enough, few], chosen).sentence
    assert "about 299 used answers in a dataset" in both
    assert "need 300" not in run_cost(chosen, SMALL, [enough], chosen).sentence


def test_more_work_costs_more() -> None:
    def seconds(
        size: DatasetSize = DEMO, model: ModelSize = SMALL, **options: object
    ) -> float:
        chosen = recipe(**{"random_cuts": 1, **options})
        return run_cost(chosen, model, [size], chosen).operations

    assert (
        seconds()
        < seconds(random_cuts=5)
        < seconds(random_cuts=5, position="answer_end")
    )
    assert seconds(report=False) < seconds() < seconds(replace(DEMO, used=600))
    assert seconds() < seconds(model=ModelSize(1_000_000_000, 16, 2048))
    assert seconds() < seconds(keep=("states", "states-cut", "detection"))
