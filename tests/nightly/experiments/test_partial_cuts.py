"""Cuts in some layers: below them nothing changes, in all layers they are the knockout, and none passes in silence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.forward import CutRows, visible
from anchorscope.engine.sequences import EDGES, Cut, TokenSequence
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.partial_cuts import PartialCut, run_partial_cuts
from anchorscope.models.language_model import LanguageModel
from partial_cuts_synthetic import N, tiny_inputs, tiny_items

CUTS = [
    PartialCut("all", range(4)),
    *(PartialCut("single", range(layer, layer + 1)) for layer in range(4)),
    PartialCut("window 2", range(1, 3)),
    PartialCut("head 1", range(2, 3), (1,)),
]


@pytest.fixture(scope="module")
def inputs(tiny_llama: LanguageModel) -> ExperimentInputs:
    return tiny_inputs(tiny_llama)


def test_a_cut_in_all_layers_is_the_knockout_and_below_a_cut_nothing_changes(
    inputs: ExperimentInputs,
) -> None:
    outcomes, missing = run_partial_cuts(inputs, CUTS, "layers")
    assert [one.cut for one in outcomes] == CUTS
    assert not missing
    clean = inputs.measured.before
    assert outcomes[0].scored.logits == pytest.approx(
        inputs.measured.after[KNOCKOUT], abs=1e-4
    )
    for one in outcomes:
        assert one.items.tolist() == list(range(N))
        assert one.scored.logits[: one.cut.first] == pytest.approx(
            clean[: one.cut.first], abs=1e-4
        )
        assert (
            np.abs(one.scored.logits - clean)[one.cut.first] > 1e-4
        ).mean() > 0.95, one.cut.variant


@given(
    keys=st.sets(st.integers(1, 9), min_size=1, max_size=4),
    edges=st.sampled_from(EDGES),
    window=st.integers(1, 12),
    answer_start=st.integers(1, 12),
)
def test_what_a_window_hides_is_what_the_masks_hide(
    keys: set[int], edges: str, window: int, answer_start: int
) -> None:
    n = 13
    cut = Cut(tuple(sorted(keys)), edges)
    queries = torch.arange(n)[None]
    lost = CutRows.of([cut], [answer_start], n, 4, torch.device("cpu")).removed(
        queries
    ) & visible(queries, n, window)
    sequence = TokenSequence(tuple(range(n)), answer_start, (n - 1,))
    assert cut.takes_edges(sequence, window) == bool(lost.any())


def test_layers_that_cannot_see_the_question_are_named_and_not_run(
    short_sighted: LanguageModel,
) -> None:
    inputs = tiny_inputs(short_sighted, tiny_items(gap=12), edges="direct")
    outcomes, missing = run_partial_cuts(inputs, CUTS, "layers")
    assert [(one.cut.variant, one.cut.first) for one in outcomes] == [
        ("single", 0),
        ("single", 1),
    ]
    (line,) = missing
    hidden = (
        "all from layer 0",
        "single from layer 2",
        "single from layer 3",
        "window 2 from layer 1",
        "head 1 from",
    )
    assert all(f"{cut}" in line for cut in hidden)
    assert line.endswith("choose --edges all")


def test_items_whose_question_is_hidden_do_not_count(
    short_sighted: LanguageModel,
) -> None:
    inputs = tiny_inputs(short_sighted, tiny_items(), edges="direct")
    outcomes, (line,) = run_partial_cuts(inputs, CUTS, "layers")
    n_run = {(one.cut.variant, one.cut.first): len(one.items) for one in outcomes}
    assert (
        n_run["single", 0] == n_run["all", 0] == n_run["window 2", 1] == N
    )  # another layer sees the question
    assert 0 < n_run["single", 2] == n_run["single", 3] < N
    assert f"single from layer 2 ({n_run['single', 2]} of {N} items)" in line
    assert all(np.isfinite(one.scored.logits).all() for one in outcomes)
