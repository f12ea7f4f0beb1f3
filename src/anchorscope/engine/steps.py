"""What decoding does with rows, whether they came together or one by one: prompts are read, then tokens follow.

Keys and values of all that was read are in a `Growing`, where slot = position. States can be read on the way, of the
tokens whose logits are wanted anyway: the last of a prompt, and every token that is fed.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.engine.forward import run_layers
from anchorscope.engine.keys_values import Growing, Prefix
from anchorscope.engine.masks import MASK_WIDTH, additive, visible
from anchorscope.engine.packed import Keep, Packed
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import CLEAN, TokenSequence
from anchorscope.models.attention import Keys, Queries, masked_attention, per_group
from anchorscope.models.devices import to_device
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel

SitePlace = tuple[str, int]
"""(site, layer) of states."""
States = dict[SitePlace, Float[Tensor, "row d_model"]]
"""States of rows at one token each."""


class StateReader:
    """Reads states at some places of some tokens while they pass the blocks."""

    def __init__(self, lm: LanguageModel, places: Iterable[SitePlace], tokens: Tensor | None) -> None:
        """`tokens` are the places in the line whose states are wanted; None for all."""
        self.places, self.tokens, self.last = tuple(places), tokens, lm.n_layers - 1
        self.found: States = {}

    def visit(self, layer: int, output: BlockOutput) -> None:
        """After every block; of the last there is nothing but the tokens that are read."""
        for site, own in self.places:
            if own == layer:
                whole = getattr(output, site)[0]
                every = self.tokens is None or layer == self.last
                self.found[site, layer] = whole if every else whole[self.tokens.to(whole.device)]  # type: ignore[union-attr]


def read_prompts(
    lm: LanguageModel,
    sequences: Sequence[TokenSequence],
    part: Sequence[int],
    prefix: Prefix,
    cache: Growing,
    into: Sequence[int],
    places: Iterable[SitePlace] = (),
) -> tuple[list[int], Float[Tensor, "row d_model"], States]:
    """Runs some prompts from the prefix on, and fills the cache's rows `into` with their keys and values.

    The prompts in the order of the rows, the stream after each one's last token, and the states there.
    """
    layout = BatchRows(sequences, part, [CLEAN], prefix.length, lm.n_layers)
    rows = torch.tensor([into[row.item] for row in layout.rows for _ in range(row.first, row.stop)])
    keep = _keeper(cache, to_device(rows, lm.device), to_device(layout.positions(), lm.device))
    packed = Packed(lm, sequences, layout, prefix, keep)
    last = to_device(layout.own[1:] - 1, lm.device)
    reader = StateReader(lm, places, last)
    stream = run_layers(lm, packed.ids, packed.positions, packed, reader.visit, read=last)
    return [row.item for row in layout.rows], stream[0].to(lm.device), reader.found


def _keeper(cache: Growing, rows: Tensor, slots: Tensor) -> Keep:
    def keep(layer: int, key: Tensor, value: Tensor) -> None:
        cache.write(layer, rows, slots, key, value)

    return keep


class Step:
    """Attention of one new token per row over all that came before it."""

    def __init__(self, lm: LanguageModel, cache: Growing, slots: Tensor, longest: int) -> None:
        self.lm, self.cache, self.slots = lm, cache, slots
        self.n_keys = min(-(-longest // MASK_WIDTH) * MASK_WIDTH, cache.n_slots)
        self.rows = torch.arange(len(slots), device=slots.device)
        self.masks: dict[tuple[int | None, torch.device], Tensor] = {}

    def enter(self, layer: int) -> None:
        """Makes ready for a layer."""
        self.layer = layer
        window, device = self.lm.sliding_window(layer), self.lm.layer_device(layer)
        if (window, device) not in self.masks:
            seen = visible(self.slots[:, None], self.n_keys, window)
            self.masks[window, device] = additive(seen, self.lm.dtype).to(device)
        self.mask = self.masks[window, device]

    def attend(
        self, query: Queries, key: Keys, value: Keys, scaling: float, softcap: float | None
    ) -> Float[Tensor, "token head d_value"]:
        """Each token sees its row's keys, its own among them; rows that the cache has beyond are not looked at."""
        keys, values = self.cache.write(self.layer, self.rows, self.slots, key, value)
        mask = per_group(self.mask, query.shape[1] // key.shape[1])
        n = len(self.slots)
        keys, values = keys[:n, : self.n_keys], values[:n, : self.n_keys]
        return masked_attention(query[:, None], keys, values, mask, scaling, softcap)[:, 0]
