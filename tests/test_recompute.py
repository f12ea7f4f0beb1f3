"""The run's effects are those that plain transformers gives: eager attention, one item at a time, an explicit mask.

The function that recomputes them is in `recompute.py` beside this file and works on any finished run.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode does not make helper modules importable

from recompute import mask_without, recompute, states_of
from small_facts import quick_options, write_questions

from anchorscope import publish
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe

SITES, PROBES = ("attention", "mlp", "residual"), ("full", "a", "b")
N_LAYERS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, save_tiny: Callable[[str], Path]) -> Callable[..., tuple]:
    """A finished run of a tiny model (without drawing), and the same model as plain transformers loads it."""
    folder = tmp_path_factory.mktemp("recompute")
    questions = write_questions(folder / "facts.jsonl")

    def run(family: str, **options: object) -> tuple[Path, torch.nn.Module]:
        saved = save_tiny(family)
        recipe = make_recipe(quick_options(questions, model=str(saved), **options))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish, "write_all", lambda findings, out: None)
            out = run_recipe(recipe, folder / "-".join([family, *map(str, options.values())]))
        model = AutoModelForCausalLM.from_pretrained(saved, attn_implementation="eager", dtype=torch.float32).eval()
        return out, model

    return run


@pytest.fixture(scope="module")
def llama(finished: Callable[..., tuple]) -> tuple[Path, torch.nn.Module]:
    return finished("llama")


def answer_start(item: dict) -> int:
    """One token per byte: the answer begins after the last "Answer:"."""
    return bytes_of(item["input_ids"]).rindex(b"Answer:") + len(b"Answer:")


def bytes_of(ids: list[int]) -> bytes:
    from conftest_bytes import BYTES

    return bytes(BYTES[index] for index in ids)


def test_every_score_of_a_run_is_what_plain_transformers_gives(llama: tuple) -> None:
    out, model = llama
    found = recompute(out, model, n_items=20)
    print(found)
    assert found.log_odds < 1e-2
    assert found.probability < 1e-3
    assert found.effect > 1e-2
    assert found.n_items == 20
    assert found.places == {(site, "final", probe) for site in SITES for probe in PROBES}
    assert found.n_scores == 20 * len(SITES) * len(PROBES) * N_LAYERS * 2
