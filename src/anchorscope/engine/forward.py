"""One batch through the decoder layers, with the engine's own attention.

Everything that runs a model here (prefix, capture, interventions, decoding) goes through `run_layers`: it embeds, walks
the blocks and hands each block's output to a visitor. The language-model head is not part of it.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.engine.keys_values import Prefix, Recorder
from anchorscope.engine.packed import Packed
from anchorscope.engine.rows import BatchRows, Joining
from anchorscope.engine.sequences import CLEAN, TokenSequence
from anchorscope.errors import UserError
from anchorscope.models.attention import Attends
from anchorscope.models.devices import to_device
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import attention_kernels

LOGITS_AT_ONCE = 2**28
"""Tokens times vocabulary that the head gives at a time: a gigabyte of float32."""

Visit = Callable[[int, BlockOutput], None]
"""Called after every block with its index and output."""


class BatchAttention(Attends, Protocol):
    """Attention of one batch, told before each layer."""

    def enter(self, layer: int) -> Joining | None:
        """Makes ready for a layer; the tokens that join here, if any do."""


def run_layers(
    lm: LanguageModel,
    ids: Int[Tensor, " token"],
    positions: Int[Tensor, " token"],
    attention: BatchAttention,
    visit: Visit,
    compiled: bool = False,
    read: Int[Tensor, " read"] | None = None,
    layers: int | None = None,
    gradients: bool = False,
) -> Float[Tensor, "1 read d_model"]:
    """Runs tokens in one line, ids and positions [token], through all blocks; the stream after the last, [1, token, d].

    `read` names the places that are wanted of the last block: after its attention only they are run. `compiled` blocks
    pay where a model is large: each graph is made once, for all layers and batches. With `layers` only so many of the
    first blocks are run; with `gradients` torch remembers what it needs to go back through them.
    """
    with torch.enable_grad() if gradients else torch.inference_mode():
        return _walk(lm, ids, positions, attention, visit, compiled, read, lm.n_layers if layers is None else layers)


def _walk(
    lm: LanguageModel,
    ids: Tensor,
    positions: Tensor,
    attention: BatchAttention,
    visit: Visit,
    compiled: bool,
    read: Tensor | None,
    layers: int,
) -> Tensor:
    lm.refuse_unknown_tokens(ids)
    ids, positions = to_device(ids, lm.device)[None], to_device(positions, lm.device)[None]
    stream = lm.embed(ids, positions)
    rotary: dict[str, tuple[Tensor, Tensor] | None] = {}
    with nullcontext() if compiled else attention_kernels():  # compiled: much work in few shapes, cuDNN may plan
        for layer in range(layers):
            joining = attention.enter(layer)
            if joining is not None:
                starts = to_device(joining.places, stream.device)
                stream = torch.cat((stream, stream[:, starts]), dim=1)
                own = to_device(joining.positions, positions.device)
                positions = torch.cat((positions, own[None]), dim=1)
                rotary.clear()
            kind = lm.rotary_kind(layer)
            if kind not in rotary:
                rotary[kind] = lm.rotary(layer, stream, positions)
            wanted = read if layer == layers - 1 else None
            output = lm.run_block(layer, stream, rotary[kind], attention, compiled, wanted)
            visit(layer, output)
            stream = output.residual
    return stream


def not_finite(lm: LanguageModel) -> UserError:
    """NaN and infinity are told: they would spread into every later number."""
    return UserError(
        f"The states of model {lm.name!r} contain NaN or infinity in {str(lm.dtype).removeprefix('torch.')}; "
        f"try --dtype float32 or bfloat16, or check the weights."
    )


def logits_in_parts(lm: LanguageModel, stream: Float[Tensor, "token d_model"]) -> Iterator[Float[Tensor, "part vocab"]]:
    """Next-token logits in float32, some tokens after the other: those of all at once would fill the memory."""
    for part in stream.split(max(1, LOGITS_AT_ONCE // int(lm.config.vocab_size))):
        yield lm.logits(part).float()


def compute_prefix(lm: LanguageModel, ids: tuple[int, ...]) -> Prefix:
    """Keys and values of the shared leading tokens, once for all items."""
    empty = Prefix(ids=(), keys=(), values=())
    if not ids:
        return empty
    recorder = Recorder()
    sequences = [TokenSequence(ids, answer_start=len(ids), read_at=())]
    packed = Packed(lm, sequences, BatchRows(sequences, [0], [CLEAN], 0, lm.n_layers), empty, recorder.keep)
    run_layers(lm, packed.ids, packed.positions, packed, lambda index, output: None)
    return Prefix(ids=ids, keys=tuple(recorder.keys), values=tuple(recorder.values))
