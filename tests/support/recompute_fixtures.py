"""Whole runs on tiny models of several families, for the tests that compute their numbers a second time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from small_facts import liven, quick_options, write_questions

Finished = tuple[Path, Any]


@pytest.fixture(scope="module")
def finish(
    tmp_path_factory: pytest.TempPathFactory, save_tiny: Callable[[str], Path]
) -> Callable[..., Finished]:
    """Runs a tiny model to the end (without drawing); the run folder, and the model as plain transformers loads it."""
    folder = tmp_path_factory.mktemp("recompute")
    questions = write_questions(folder / "facts.jsonl")

    def run(family: str, **options: str) -> Finished:
        saved = save_tiny(family)
        model = AutoModelForCausalLM.from_pretrained(
            saved, attn_implementation="eager", dtype=torch.float32
        ).eval()
        liven(model)
        model.save_pretrained(saved)
        small = {"folds": 2, "random_cuts": 1, "directions": 2}
        recipe = make_recipe(
            quick_options(questions, model=str(saved), **small, **options)
        )
        return run_recipe(recipe, folder / "-".join([family, *options.values()])), model

    return run
