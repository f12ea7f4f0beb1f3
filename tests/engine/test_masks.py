"""Masks: exactly the edges that the definitions name, compared with slow loops over single edges."""

import pytest
import torch
from engine_cases import SHARED, loses, make_cuts
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.forward import LayerMasks
from anchorscope.engine.masks import additive, causal, cut_edges
from anchorscope.engine.sequences import EDGES, Cut, TokenSequence
from anchorscope.models.language_model import LanguageModel

CPU = torch.device("cpu")


@st.composite
def cut_batches(draw: st.DrawFn) -> tuple[list[TokenSequence], list[Cut], int]:
    """A batch of items of different lengths with a cut each, and the length of their shared prefix."""
    n_prefix = draw(st.integers(0, 4))
    lengths = draw(st.lists(st.integers(n_prefix + 1, 14), min_size=1, max_size=3))
    sequences, cuts = [], []
    for length in lengths:
        start = draw(st.integers(n_prefix, length - 1))
        keys = draw(st.sets(st.integers(n_prefix, length - 1), max_size=5))
        sequences.append(TokenSequence(ids=(1,) * length, answer_start=start, read_at=(length - 1,)))
        cuts.append(Cut(keys=tuple(sorted(keys)), edges=draw(st.sampled_from(EDGES))))
    return sequences, cuts, n_prefix


@given(cut_batches())
def test_a_cut_removes_exactly_the_edges_of_the_definition(batch: tuple[list[TokenSequence], list[Cut], int]) -> None:
    sequences, cuts, n_prefix = batch
    n_keys = max(len(sequence.ids) for sequence in sequences)
    removed = cut_edges(sequences, cuts, n_prefix, n_keys)
    assert removed.shape == (len(cuts), n_keys - n_prefix, n_keys)
    for row, (sequence, cut) in enumerate(zip(sequences, cuts, strict=True)):
        for query in range(n_prefix, n_keys):
            for key in range(n_keys):
                # Padding is nobody's query: an edge of it would count as cut without changing anything.
                wanted = query < len(sequence.ids) and loses(sequence, cut, query, key)
                assert bool(removed[row, query - n_prefix, key]) == wanted, (cut, query, key)


@given(st.integers(1, 12), st.integers(0, 11), st.none() | st.integers(1, 14))
def test_causal_masks_see_the_past_within_the_window_and_nothing_else(
    n_keys: int, n_before: int, window: int | None
) -> None:
    n_before = min(n_before, n_keys - 1)
    allowed = causal(n_keys - n_before, n_keys, window, CPU)
    for query in range(n_before, n_keys):
        for key in range(n_keys):
            wanted = key <= query and (window is None or query - key < window)
            assert bool(allowed[query - n_before, key]) == wanted


@given(cut_batches(), st.none() | st.integers(1, 14))
def test_no_row_of_a_mask_is_ever_empty(batch: tuple[list[TokenSequence], list[Cut], int], window: int | None) -> None:
    sequences, cuts, n_prefix = batch
    n_keys = max(len(sequence.ids) for sequence in sequences)
    allowed = causal(n_keys - n_prefix, n_keys, window, CPU)[None] & ~cut_edges(sequences, cuts, n_prefix, n_keys)
    assert torch.isfinite(torch.softmax(additive(allowed, torch.float32), dim=-1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masks_are_zero_or_minus_infinity_in_the_models_precision(dtype: torch.dtype) -> None:
    mask = additive(torch.tensor([[[True, False], [True, True]]]), dtype)
    assert mask.dtype == dtype
    assert mask.tolist() == [[[[0.0, float("-inf")], [0.0, 0.0]]]]  # with an axis for the heads


def test_layers_count_the_edges_they_really_lost(mixed_windows: LanguageModel, items: list[TokenSequence]) -> None:
    cuts = make_cuts(items)
    n_prefix, n_keys = len(SHARED), max(len(item.ids) for item in items)
    masks = LayerMasks(mixed_windows, n_keys - n_prefix, n_keys, cut_edges(items, cuts, n_prefix, n_keys))
    for layer in (0, 2, 3):  # layer 1 never asks for its mask
        masks.of(layer)
    far = near = 0
    for item, cut in zip(items, cuts, strict=True):
        lost = [
            query - key for query in range(n_prefix, len(item.ids)) for key in cut.keys if loses(item, cut, query, key)
        ]
        far, near = far + len(lost), near + sum(distance < 8 for distance in lost)
    assert near < far
    assert masks.edges_cut == [far, 0, near, near]
