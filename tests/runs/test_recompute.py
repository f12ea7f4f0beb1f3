"""The run's effects are those that plain transformers gives: eager attention, one item at a time, an explicit mask.

The function that recomputes them is in `recompute.py` beside this file and works on any finished run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import recompute as again
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from recompute import mask_without, recompute, states_of
from small_facts import liven, quick_options, write_questions

SITES, PROBES, N_LAYERS = ("attention", "mlp", "residual"), ("full", "a", "b"), 4
Finished = tuple[Path, Any]


@pytest.fixture(scope="module")
def finish(tmp_path_factory: pytest.TempPathFactory, save_tiny: Callable[[str], Path]) -> Callable[..., Finished]:
    """Runs a tiny model to the end (without drawing); the run folder, and the model as plain transformers loads it."""
    folder = tmp_path_factory.mktemp("recompute")
    questions = write_questions(folder / "facts.jsonl")

    def run(family: str, **options: str) -> Finished:
        saved = save_tiny(family)
        model = AutoModelForCausalLM.from_pretrained(saved, attn_implementation="eager", dtype=torch.float32).eval()
        liven(model)
        model.save_pretrained(saved)
        small = {"folds": 2, "random_cuts": 1, "directions": 2}
        recipe = make_recipe(quick_options(questions, model=str(saved), **small, **options))
        return run_recipe(recipe, folder / "-".join([family, *options.values()])), model

    return run


@pytest.fixture(scope="module")
def llama(finish: Callable[..., Finished]) -> Finished:
    return finish("llama")


def test_every_score_of_a_run_is_what_plain_transformers_gives(llama: Finished) -> None:
    found = recompute(*llama, n_items=20)
    assert found.log_odds < 1e-2
    assert found.probability < 1e-3
    assert found.log_odds < 1e-3 * found.effect  # a tiny float32 model: the noise is far below what is measured
    assert found.effect > 0.02
    assert found.n_items == 20
    assert found.places == {(site, "final", probe) for site in SITES for probe in PROBES}
    assert found.n_scores == 20 * len(SITES) * len(PROBES) * N_LAYERS * 2


@pytest.mark.parametrize("wrong", ["nothing is cut", "one key is left", "one query is left"])
def test_the_comparison_notices_a_wrong_mask(llama: Finished, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(n: int, keys: list[int], edges: str, answer_start: int | None, window: int | None) -> torch.Tensor:
        if not keys or wrong == "nothing is cut":
            return mask_without(n, [], "all", None, window)
        if wrong == "one key is left":
            return mask_without(n, keys[:-1], "all", None, window)
        mask = mask_without(n, keys, "all", None, window)
        mask[:, :, -1, keys] = 0.0
        return mask

    monkeypatch.setattr(again, "mask_without", mistaken)
    assert recompute(*llama, n_items=3).log_odds > 1e-3


def test_the_causal_mask_written_out_is_what_the_model_does_by_itself(llama: Finished) -> None:
    _, model = llama
    ids = list(range(40, 70))
    written = states_of(model, ids, mask_without(30, [], "all", None))["residual"][:-1]
    with torch.no_grad():
        own = torch.cat(model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1:-1])
    assert torch.allclose(written, own, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "window", "options"),
    [("mistral", 8, {"edges": "outside"}), ("qwen3", None, {"edges": "direct", "position": "answer_end"})],
)
def test_windows_other_edges_positions_and_families_are_recomputed_too(
    finish: Callable[..., Finished], family: str, window: int | None, options: dict[str, str]
) -> None:
    out, model = finish(family, **options)
    tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)

    def answer_start(item: Any) -> int:
        return tokenizer.decode(item["input_ids"]).rindex("Answer:") + len("Answer:")  # one token per character

    found = recompute(out, model, n_items=4, window=window, answer_start=answer_start)
    assert found.log_odds < 1e-3
    assert found.log_odds < 1e-2 * found.effect
    positions = {"final", options.get("position", "final")}
    assert {position for _, position, _ in found.places} == positions


def test_edges_between_exact_tokens_alone_change_nothing(llama: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else sees the exact tokens, in any layer, so what they see of each other reaches no probe."""
    monkeypatch.setattr(again, "mask_without", lambda n, keys, *_: mask_without(n, keys, "outside", None))
    found = recompute(*llama, n_items=3)
    assert found.log_odds < 1e-3 * found.effect
