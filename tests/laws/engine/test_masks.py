"""Masks: exactly the edges that the definitions name, compared with slow loops over single edges."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.forward import (
    NO_PREFIX,
    CutRows,
    Packed,
    additive,
    run_layers,
    visible,
)
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import EDGES, HOW, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from engine_cases import SHARED, loses, make_cuts

CPU = torch.device("cpu")


@st.composite
def cut_batches(draw: st.DrawFn) -> tuple[list[TokenSequence], list[Cut]]:
    """A batch of items of different lengths with a cut each."""
    lengths = draw(st.lists(st.integers(1, 14), min_size=1, max_size=3))
    sequences, cuts = [], []
    for length in lengths:
        keys = draw(st.sets(st.integers(0, length - 1), max_size=5))
        start = draw(st.integers(0, length - 1))
        sequences.append(
            TokenSequence(ids=(1,) * length, answer_start=start, read_at=(length - 1,))
        )
        cuts.append(Cut(keys=tuple(sorted(keys)), edges=draw(st.sampled_from(EDGES))))
    return sequences, cuts


def lost_edges(
    sequences: list[TokenSequence], cuts: list[Cut], n_keys: int
) -> torch.Tensor:
    rows = CutRows.of(
        cuts, [sequence.answer_start for sequence in sequences], n_keys, 4, CPU
    )
    return rows.removed(torch.arange(n_keys).repeat(len(cuts), 1))


@given(cut_batches())
def test_a_cut_removes_exactly_the_edges_of_the_definition(
    batch: tuple[list[TokenSequence], list[Cut]],
) -> None:
    sequences, cuts = batch
    n_keys = max(len(sequence.ids) for sequence in sequences) + 2
    removed = lost_edges(sequences, cuts, n_keys)
    for row, (sequence, cut) in enumerate(zip(sequences, cuts, strict=True)):
        for query in range(len(sequence.ids)):
            for key in range(n_keys):
                assert bool(removed[row, query, key]) == loses(
                    sequence, cut, query, key
                ), (cut, query, key)


@given(st.integers(1, 12), st.integers(0, 11), st.none() | st.integers(1, 14))
def test_causal_masks_see_the_past_within_the_window_alone(
    n_keys: int, n_before: int, window: int | None
) -> None:
    n_before = min(n_before, n_keys - 1)
    allowed = visible(torch.arange(n_before, n_keys)[None], n_keys, window)[0]
    for query in range(n_before, n_keys):
        for key in range(n_keys):
            wanted = key <= query and (window is None or query - key < window)
            assert bool(allowed[query - n_before, key]) == wanted


@given(cut_batches(), st.none() | st.integers(1, 14))
def test_no_row_of_a_mask_is_ever_empty(
    batch: tuple[list[TokenSequence], list[Cut]], window: int | None
) -> None:
    n_keys = max(len(sequence.ids) for sequence in batch[0])
    queries = torch.arange(n_keys).repeat(len(batch[0]), 1)
    allowed = visible(queries, n_keys, window) & ~lost_edges(*batch, n_keys)
    assert torch.isfinite(torch.softmax(additive(allowed, torch.float32), dim=-1)).all()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("heads", [None, (1,), (0, 2)])
def test_layers_count_the_edges_they_really_lost(
    mixed_windows: LanguageModel,
    items: list[TokenSequence],
    how: str,
    heads: tuple[int, ...] | None,
) -> None:
    cuts = [
        Cut(cut.keys, how=how, heads=heads) for cut in make_cuts(items)
    ]  # heads are not counted
    rows = BatchRows(
        items,
        range(len(items)),
        [Variant(dict(enumerate(cuts)), layers=range(4))],
        0,
        4,
    )
    packed = Packed(mixed_windows, items, rows, NO_PREFIX)
    run_layers(mixed_windows, packed.ids, packed.positions, packed)
    far = near = 0
    for item, cut in zip(items, cuts, strict=True):
        lost = [
            query - key
            for query in range(len(item.ids))
            for key in cut.keys
            if loses(item, cut, query, key)
        ]
        far, near = far + len(lost), near + sum(distance < 8 for distance in lost)
    assert near < far
    assert len(SHARED) < 8
    assert {layer: int(count.sum()) for layer, count in packed.lost.items()} == {
        0: far,
        1: far,
        2: near,
        3: near,
    }
