"""Compiled blocks: the same numbers, and a few graphs for all layers, windows, batches and numbers of tokens."""

import pytest
import torch
from torch import Tensor

from anchorscope.engine.batching import compile_threshold
from anchorscope.engine.sequences import CLEAN, TokenSequence, Variant
from anchorscope.models import language_model
from anchorscope.models.families import run_block
from anchorscope.models.language_model import LanguageModel
from engine_cases import assert_same, captured, make_cuts, shared_prefix


def test_compiled_blocks_give_the_same_from_few_graphs(
    mixed_windows: LanguageModel,
    items: list[TokenSequence],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = mixed_windows
    graphs: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(len(list(graph.graph.nodes)))
        return graph.forward

    torch.compiler.reset()
    # the graphs as they are; kernels are torch's own
    compiled = torch.compile(run_block, dynamic=True, backend=count)
    monkeypatch.setattr(language_model, "compiled_run_block", lambda: compiled)
    cuts = dict(enumerate(make_cuts(items)))
    found: dict[bool, list[Tensor]] = {False: [], True: []}
    for is_compiled, states in found.items():
        variants = [
            CLEAN,
            Variant(cuts),
            *(Variant(cuts, range(layer, layer + 1)) for layer in range(4)),
        ]
        states += captured(
            lm, items, shared_prefix(lm), variants, 300, compiled=is_compiled
        )[0].values()
    for plain, fast in zip(found[False], found[True], strict=True):
        assert_same(fast, plain)
    # several batches, of different numbers of tokens, through four layers
    assert len(found[True]) > 6
    # norm, before attention, after it, feed-forward; and the last block's end
    assert 2 <= len(graphs) <= 8


def test_nothing_is_compiled_where_it_does_not_pay(tiny_llama: LanguageModel) -> None:
    # not on the CPU, however much there is to do
    assert compile_threshold(tiny_llama) is None
