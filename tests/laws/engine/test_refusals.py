"""What the engine must never do in silence: leave a cut out, or hand on numbers that are none."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.engine.decode import decode
from anchorscope.engine.forward import NO_PREFIX, Packed
from anchorscope.engine.sequences import Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import LENGTHS, SHARED, captured, make_cuts, run, shared_prefix


@pytest.mark.parametrize("key", [0, len(SHARED) - 1])
def test_a_cut_inside_the_shared_prefix_is_refused(
    tiny: LanguageModel, items: list[TokenSequence], key: int
) -> None:
    cuts = make_cuts(items)
    cuts[2] = Cut(keys=(key, 9))
    named = re.escape(
        f"({key}, 9), and only {len(SHARED)} to {len(items[2].ids) - 1} are run"
    )
    with pytest.raises(InterventionNotApplied, match=named):
        run(tiny, items, shared_prefix(tiny), cuts)
    run(tiny, items, NO_PREFIX, cuts)  # what the message advises


@pytest.mark.parametrize("place", ["last token", "padding", "after the batch"])
@pytest.mark.parametrize("together", [True, False])
def test_a_cut_that_takes_nothing_from_its_item_is_refused(
    tiny: LanguageModel, items: list[TokenSequence], place: str, together: bool
) -> None:
    # Nobody comes after the last token; and what the neighbours in the batch lose does not count.
    own = len(items[0].ids)
    key = {"last token": own - 1, "padding": own + 1, "after the batch": 99}[place]
    cuts = [Cut(keys=(key,)), *make_cuts(items)[1:]]
    batches = [[0, 1, 2]] if together else [[1, 2], [0]]
    with pytest.raises(InterventionNotApplied, match=re.escape(f"({key},)")):
        run(tiny, items, NO_PREFIX, cuts, batches)


@pytest.mark.parametrize("heads", [(4,), (0, 17)])
def test_missing_heads_cannot_be_cut(
    tiny_llama: LanguageModel, items: list[TokenSequence], heads: tuple[int, ...]
) -> None:
    with pytest.raises(InterventionNotApplied, match="there are 0 to 3"):
        run(tiny_llama, items, NO_PREFIX, [Cut((8,), heads=heads) for _ in items])


@pytest.mark.parametrize("position", [0, len(SHARED) - 1, LENGTHS[0]])
def test_only_what_is_run_can_be_read(
    tiny: LanguageModel, items: list[TokenSequence], position: int
) -> None:
    # An index before the prefix's end would count from the back, one after the item's end would read its padding.
    reads = [replace(item, read_at=(8, len(item.ids) - 1)) for item in items]
    reads[0] = replace(items[0], read_at=(8, position))
    with pytest.raises(
        ValueError, match=f"only {len(SHARED)} to {LENGTHS[0] - 1} are run"
    ):
        captured(tiny, reads, shared_prefix(tiny))


@pytest.mark.parametrize("silent", [0, 2, 3])
def test_a_layer_that_was_given_no_cut_is_named(
    tiny: LanguageModel,
    items: list[TokenSequence],
    monkeypatch: pytest.MonkeyPatch,
    silent: int,
) -> None:
    asking = Packed.enter

    def forgets(self: Packed, layer: int) -> torch.Tensor | None:
        # As a layer would whose attention is computed without the plan that was made for it.
        found = asking(self, layer)
        if layer == silent:
            none = np.zeros(self.rows.open_at(layer), dtype=bool)
            self.plan = self._plan(
                len(none),
                none,
                self.lm.sliding_window(layer),
                self.lm.layer_device(layer),
            )
        return found

    prefix = shared_prefix(tiny)
    monkeypatch.setattr(Packed, "enter", forgets)
    with pytest.raises(
        InterventionNotApplied, match=re.escape(f"layers [{silent}] were asked")
    ):
        run(tiny, items, prefix, make_cuts(items))
    run(tiny, items, prefix)  # a clean pass asks for nothing and is not refused


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed"
)  # torch, once, on processors without bfloat16
@pytest.mark.parametrize(
    ("bad", "dtype"), [(float("nan"), torch.float32), (float("inf"), torch.bfloat16)]
)
def test_states_that_are_no_numbers_are_refused_with_the_precision(
    tiny: LanguageModel, items: list[TokenSequence], bad: float, dtype: torch.dtype
) -> None:
    broken = wrap(copy.deepcopy(tiny.model).to(dtype), tiny.tokenizer)
    with torch.no_grad():
        for parameter in getattr(broken.layers[-1], broken.family.mlp).parameters():
            parameter.fill_(bad)
    with pytest.raises(UserError, match="its own states contain NaN or infinity"):
        wrap(broken.model, tiny.tokenizer)  # told as soon as it is loaded
    with pytest.raises(UserError) as caught:
        run(broken, items, shared_prefix(broken))
    with pytest.raises(UserError) as decoding:
        decode(broken, [items[0].ids], NO_PREFIX, [[0]], 5, lambda token, so_far: False)
    text = str(caught.value)
    assert str(decoding.value) == text  # no answer is drawn from logits that are none
    assert "NaN or infinity" in text
    assert f"in {str(dtype).removeprefix('torch.')};" in text
    assert "--dtype" in text


@pytest.mark.parametrize("budget", [10_000, 50])
def test_a_hidden_cut_is_refused_whatever_runs_beside_it(
    mixed_windows: LanguageModel, budget: int
) -> None:
    far = TokenSequence(ids=tuple(range(40)), answer_start=37, read_at=(39,))
    near = TokenSequence(ids=tuple(range(5, 45)), answer_start=37, read_at=(39,))
    hidden, seen = Cut(keys=(5,), edges="direct"), Cut(keys=(35,), edges="direct")

    def go(*variants: Variant) -> None:
        captured(mixed_windows, [far, near], variants=variants, tokens=budget)

    with pytest.raises(UserError, match="sliding window"):
        # another variant's edges do not count
        go(Variant({0: seen, 1: seen}), Variant({0: hidden, 1: hidden}))
    with pytest.raises(UserError, match="takes no attention edge from it in any layer"):
        go(Variant({0: hidden, 1: seen}, range(2, 4)))  # nor do another item's
    # the first layers see everything: each item loses something
    go(Variant({0: hidden, 1: seen}))
