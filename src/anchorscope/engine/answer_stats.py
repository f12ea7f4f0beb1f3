"""How sure the model is of the tokens of an answer: log-probability, lead over the next best token, entropy.

Each answer token is predicted by the token before it, as the run in question has it: where edges are cut, that may be a
token of the cut row or, before the first query that loses an edge, one of the clean row. The head runs on these only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.engine.forward import logits_in_parts
from anchorscope.engine.rows import BatchRows, all_between
from anchorscope.engine.sequences import TokenSequence
from anchorscope.models.devices import to_device
from anchorscope.models.language_model import LanguageModel

STATISTICS = ("log_prob", "margin", "entropy")
"""What is told of every answer token, in this order."""


@dataclass(frozen=True)
class AnswerStats:
    """Statistics of the answer tokens of some items, one item after the other."""

    lengths: Int[ndarray, " item"]
    """How many tokens each item's answer has; none is possible."""
    log_prob: Float[ndarray, " answer_token"]
    """Log-probability of each token, in nats."""
    margin: Float[ndarray, " answer_token"]
    """Log-probability of the token less that of the best other one: positive where greedy decoding would choose it."""
    entropy: Float[ndarray, " answer_token"]
    """Entropy, in nats, of the distribution that the token was drawn from."""

    @classmethod
    def of(cls, items: Sequence[Float[ndarray, "statistic answer_token"]]) -> "AnswerStats":
        """From each item's own numbers, rows as in `STATISTICS`."""
        whole = np.concatenate([np.empty((len(STATISTICS), 0), np.float32), *items], axis=1)
        return cls(np.array([one.shape[1] for one in items], dtype=np.int64), *whole)

    def by_item(self) -> list[Float[ndarray, "statistic answer_token"]]:
        """Each item's own numbers, rows as in `STATISTICS`."""
        whole, stops = np.stack([self.log_prob, self.margin, self.entropy]), np.cumsum(self.lengths)
        return [whole[:, stop - length : stop] for stop, length in zip(stops, self.lengths, strict=True)]

    def take(self, items: Sequence[int] | Int[ndarray, " chosen"]) -> "AnswerStats":
        """Some of the items, in this order."""
        chosen = np.asarray(items, dtype=np.int64)
        stops = np.cumsum(self.lengths)[chosen]
        tokens = all_between(stops - self.lengths[chosen], stops)
        return AnswerStats(self.lengths[chosen], self.log_prob[tokens], self.margin[tokens], self.entropy[tokens])

    @classmethod
    def join(cls, parts: "Sequence[AnswerStats]") -> "AnswerStats":
        """The items of several parts, one after the other."""
        told = ((one.lengths, one.log_prob, one.margin, one.entropy) for one in (cls.of([]), *parts))
        return cls(*map(np.concatenate, zip(*told, strict=True)))


@dataclass(frozen=True)
class AnswerTokens:
    """The answer tokens of one batch, variant by variant, and where the tokens before them are."""

    ids: Int[Tensor, " answer_token"]
    before: Int[ndarray, " answer_token"]
    """Places in the last layer's stream of the tokens that predict them."""
    lengths: dict[int, list[int]]
    """By variant, how many tokens each of its items has."""

    @classmethod
    def of(
        cls, sequences: Sequence[TokenSequence], rows: BatchRows, variants: Sequence[int], last_layer: int
    ) -> "AnswerTokens":
        """Those of the items that these variants run."""
        readings = [rows.readings[variant] for variant in variants]
        read = [sequences[item] for reading in readings for item in reading.items]
        _refuse_unpredicted(read, rows.n_prefix)
        lengths = {
            variant: [len(sequences[item].ids) - sequences[item].answer_start for item in reading.items]
            for variant, reading in zip(variants, readings, strict=True)
        }
        starts = np.array([one.answer_start for one in read], dtype=np.int64)
        stops = np.array([len(one.ids) for one in read], dtype=np.int64)
        readers = np.array([row for reading in readings for row in reading.rows], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(one.ids[one.answer_start :] for one in read), dtype=np.int64)
        before = rows.token_indices(np.repeat(readers, stops - starts), all_between(starts, stops) - 1, last_layer)
        return cls(torch.from_numpy(ids), before, lengths)

    def split(self, found: Float[Tensor, "statistic answer_token"]) -> dict[int, Float[Tensor, "statistic part"]]:
        """The numbers of each variant's tokens."""
        parts = found.split([sum(lengths) for lengths in self.lengths.values()], dim=1)
        return dict(zip(self.lengths, parts, strict=True))


@torch.inference_mode()
def token_statistics(
    lm: LanguageModel, stream: Float[Tensor, "token d_model"], ids: Int[Tensor, " token"]
) -> Float[Tensor, "statistic token"]:
    """`STATISTICS` of tokens, from the streams after the last block of the tokens before them."""
    parts, done = [torch.empty(len(STATISTICS), 0, device=lm.device)], 0
    for logits in logits_in_parts(lm, stream) if len(ids) else ():
        told = to_device(ids[done : done + len(logits)], logits.device)
        parts.append(logits_statistics(logits, told).to(lm.device))
        done += len(logits)
    return torch.cat(parts, dim=1)


def logits_statistics(
    logits: Float[Tensor, "token vocab"], ids: Int[Tensor, " token"]
) -> Float[Tensor, "statistic token"]:
    """`STATISTICS` of tokens from the logits that they are chosen by."""
    told = ids[:, None]
    chosen = logits.gather(1, told)[:, 0]
    total = logits.logsumexp(dim=-1)
    entropy = torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1)
    best_other = logits.scatter(1, told, float("-inf")).amax(dim=-1)
    return torch.stack([chosen - total, chosen - best_other, entropy])


def _refuse_unpredicted(sequences: Sequence[TokenSequence], n_prefix: int) -> None:
    for one in sequences:
        if one.answer_start < 1:
            raise ValueError("an item answers from its very first token, which nothing predicts")
        if one.answer_start <= n_prefix:
            raise ValueError(
                f"an item answers from {one.answer_start}, and the token before it, which predicts the answer's first, "
                f"is not run: the shared prefix has {n_prefix}"
            )
