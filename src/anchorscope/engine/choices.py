"""How likely each of a few tokens is as the next one after every prompt: one pass, nothing is generated."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.engine.batching import Budget, run_in_batches
from anchorscope.engine.forward import logits_in_parts, not_finite, run_layers
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.packed import Packed
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import CLEAN, TokenSequence
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent


def choice_log_probs(
    lm: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    choices: Sequence[int],
    budget: Budget | None = None,
    progress: Progress | None = None,
    title: str = "choices",
) -> Float[Tensor, "prompt choice"]:
    """Log-probabilities of the chosen tokens after each whole prompt (prefix included), in host memory."""
    listener = progress or Silent()
    sequences = [TokenSequence(ids, answer_start=len(ids), read_at=()) for ids in prompts]
    found = torch.zeros(len(prompts), len(choices))

    def run(batch: list[int]) -> None:
        found[batch] = _log_probs(lm, sequences, prefix, batch, choices).cpu()
        listener.advance(len(batch))

    listener.start(title, sum(len(batch) for batch in batches))
    run_in_batches(batches, lambda: [len(ids) - prefix.length for ids in prompts], budget, run)
    if not bool(torch.isfinite(found).all()):
        raise not_finite(lm)
    listener.finish()
    return found


@torch.inference_mode()
def _log_probs(
    lm: LanguageModel, sequences: Sequence[TokenSequence], prefix: Prefix, batch: list[int], choices: Sequence[int]
) -> Float[Tensor, "item choice"]:
    """Of one batch, from the stream after each prompt's last token."""
    rows = BatchRows(sequences, batch, [CLEAN], prefix.length, lm.n_layers)
    packed = Packed(lm, sequences, rows, prefix)
    last = torch.from_numpy(rows.own[1:] - 1)
    stream = run_layers(lm, packed.ids, packed.positions, packed, lambda index, output: None, read=last)[0]
    parts = [
        logits[:, list(choices)] - logits.logsumexp(dim=-1, keepdim=True) for logits in logits_in_parts(lm, stream)
    ]
    assert [row.item for row in rows.rows] == batch, "clean rows stand in the order of their items"
    return torch.cat(parts)
