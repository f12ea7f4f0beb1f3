"""Effects of other families, edges and positions are those of plain transformers too."""

from collections.abc import Callable
from typing import Any

import pytest
from transformers import AutoTokenizer

from recompute import recompute
from recompute_fixtures import *  # noqa: F403
from recompute_fixtures import Finished


@pytest.mark.parametrize(
    ("family", "window", "options"),
    [
        ("mistral", 8, {"edges": "outside"}),
        ("qwen3", None, {"edges": "direct", "position": "answer_end"}),
    ],
)
def test_windows_other_edges_positions_and_families_are_recomputed_too(
    finish: Callable[..., Finished],
    family: str,
    window: int | None,
    options: dict[str, str],
) -> None:
    out, model = finish(family, **options)
    tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)

    def answer_start(item: Any) -> int:
        return tokenizer.decode(item["input_ids"]).rindex("Answer:") + len(
            "Answer:"
        )  # one token per character

    found = recompute(out, model, n_items=4, window=window, answer_start=answer_start)
    assert found.log_odds < 1e-3
    assert found.log_odds < 1e-2 * found.effect
    positions = {"final", options.get("position", "final")}
    assert {position for _, position in found.places} == positions
