"""Statistics of answer tokens: those of transformers' own logits, in the clean run and under a cut."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from anchorscope.engine import forward
from anchorscope.engine.capture import STATISTICS
from anchorscope.engine.forward import NO_PREFIX, Prefix, compute_prefix
from anchorscope.engine.sequences import (
    CLEAN,
    NO_CUT,
    Cut,
    Patch,
    TokenSequence,
    Variant,
)
from anchorscope.models.language_model import LanguageModel
from engine_cases import SHARED, captured, make_cuts, make_items, shared_prefix
from hf_reference import reference_logits, windows

LENGTHS_OF_ANSWERS = (4, 1, 5, 0, 12)
"""One is empty; the last begins before the second cut key."""


@pytest.fixture(scope="module")
def answered() -> list[TokenSequence]:
    items = make_items()
    return [
        replace(one, answer_start=len(one.ids) - n)
        for one, n in zip(items, LENGTHS_OF_ANSWERS, strict=True)
    ]


def stats(
    lm: LanguageModel,
    items: Sequence[TokenSequence],
    variants: Sequence[Variant],
    prefix: Prefix,
    budget: int = 10_000,
) -> dict[tuple[int, int], np.ndarray]:
    """Of every (variant, item), [statistic, token]."""
    found: dict[tuple[int, int], np.ndarray] = {}

    def receive(
        variant: int, batch: list[int], values: Tensor, lengths: list[int]
    ) -> None:
        parts = zip(batch, values.split(lengths, dim=1), strict=True)
        found.update({(variant, item): one.numpy() for item, one in parts})

    captured(
        lm,
        items,
        prefix,
        variants,
        budget,
        answers_of=range(len(variants)),
        receive_answers=receive,
    )
    return found


def by_transformers(lm: LanguageModel, item: TokenSequence, cut: Cut) -> np.ndarray:
    """The definitions, one token at a time."""
    log_probs = torch.log_softmax(
        reference_logits(lm.model, item, cut, windows(lm.model)).double(), -1
    )
    rows = []
    for position in range(item.answer_start, len(item.ids)):
        row, token = log_probs[position - 1], item.ids[position]
        others = torch.cat((row[:token], row[token + 1 :]))
        rows.append(
            [
                float(row[token]),
                float(row[token] - others.max()),
                float(-(row.exp() * row).sum()),
            ]
        )
    return np.array(rows).reshape(-1, len(STATISTICS)).T


@pytest.mark.parametrize("edges", ["all", "direct"])
def test_statistics_equal_an_eager_reference(
    tiny: LanguageModel, answered: list[TokenSequence], edges: str
) -> None:
    cuts = {index: make_cuts(answered, edges)[index] for index in (0, 2, 4)}
    for shared, budget in ((SHARED, 10_000), (SHARED[:-1], 60), ((), 10_000)):
        found = stats(
            tiny, answered, [CLEAN, Variant(cuts)], compute_prefix(tiny, shared), budget
        )
        assert set(found) == {
            *((0, item) for item in range(5)),
            *((1, item) for item in cuts),
        }
        for (variant, index), values in found.items():
            wanted = by_transformers(
                tiny, answered[index], cuts[index] if variant else NO_CUT
            )
            assert (
                values.shape
                == wanted.shape
                == (len(STATISTICS), LENGTHS_OF_ANSWERS[index])
            )
            np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4)
        assert np.abs(found[0, 4] - found[1, 4]).max() > 1e-2  # the cut is felt


def test_the_head_runs_on_some_tokens_at_a_time(
    tiny_llama: LanguageModel,
    answered: list[TokenSequence],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = stats(tiny_llama, answered, [CLEAN], NO_PREFIX)
    sizes: list[int] = []
    logits = LanguageModel.logits
    monkeypatch.setattr(forward, "LOGITS_AT_ONCE", 2 * 260)
    monkeypatch.setattr(
        LanguageModel,
        "logits",
        lambda lm, part: sizes.append(len(part)) or logits(lm, part),
    )
    found = stats(tiny_llama, answered, [CLEAN], NO_PREFIX)
    assert max(sizes) == 2
    assert sum(sizes) == sum(LENGTHS_OF_ANSWERS)
    for key, values in found.items():
        np.testing.assert_allclose(values, wanted[key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("budget", [10_000, 50])
def test_a_cut_alone_equals_one_beside_others(
    tiny_llama: LanguageModel, answered: list[TokenSequence], budget: int
) -> None:
    cut = Variant({0: make_cuts(answered)[0], 4: make_cuts(answered)[4]}, range(1, 3))
    patched = Variant(None, range(2, 3), {4: Patch((8,), 2, (9,))})
    alone = [
        stats(tiny_llama, answered, [one], NO_PREFIX) for one in (cut, CLEAN, patched)
    ]
    found = stats(
        tiny_llama, answered, [cut, CLEAN, patched], shared_prefix(tiny_llama), budget
    )
    assert set(found) == {(0, 0), (0, 4), *((1, item) for item in range(5)), (2, 4)}
    for (variant, item), one in found.items():
        np.testing.assert_allclose(one, alone[variant][0, item], rtol=1e-4, atol=1e-4)
    assert np.abs(found[2, 4] - found[1, 4]).max() > 1e-3


def test_a_prefix_that_hides_what_predicts_the_answer_is_refused(
    tiny_llama: LanguageModel,
) -> None:
    item = TokenSequence((*SHARED, 40, 41), answer_start=len(SHARED), read_at=(7,))
    with pytest.raises(ValueError, match="is not run: the shared prefix has 6"):
        stats(tiny_llama, [item], [CLEAN], shared_prefix(tiny_llama))
    assert stats(tiny_llama, [item], [CLEAN], compute_prefix(tiny_llama, SHARED[:5]))[
        0, 0
    ].shape == (3, 2)
    with pytest.raises(ValueError, match="answers from 0"):
        stats(tiny_llama, [replace(item, answer_start=0)], [CLEAN], NO_PREFIX)
