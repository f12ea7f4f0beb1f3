"""Greedy answers in batches: the shared prefix's keys and values are reused, and finished rows leave the batch.

Rows are padded on the left, so that all rows append at the same place; an answer ends before the first token that holds
a line break, or at an end-of-text token. The log-probability of every answer token comes along.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.engine.batching import Budget, run_in_batches
from anchorscope.engine.forward import refuse_not_finite, run_layers
from anchorscope.engine.keys_values import Growing, Prefix
from anchorscope.engine.masks import additive
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent

_LEAVE_SHARE = 0.25  # rows leave in groups: moving the keys and values of the rest costs about as much as one step


IsEnd = Callable[[int, Sequence[int]], bool]
"""Whether a token ends an answer, given those before it."""


@dataclass(frozen=True)
class Decoded:
    """One greedy answer."""

    ids: tuple[int, ...]
    """The answer's tokens, without the line break or end token."""
    log_probs: tuple[float, ...]
    """Log-probability of each of them."""
    finished: bool
    """Whether the answer ended by itself; False means truncated."""


def decode(
    lm: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    max_new_tokens: int,
    is_end: IsEnd,
    progress: Progress | None = None,
    budget: Budget | None = None,
    title: str = "answers",
) -> list[Decoded]:
    """A greedy answer to each prompt (whole prompts, prefix included); the budget is lowered where memory runs out."""
    listener = progress or Silent()
    listener.start(title, len(prompts))
    answers: dict[int, Decoded] = {}

    def run(batch: list[int]) -> None:
        rows = [prompts[index][prefix.length :] for index in batch]
        spoken = _Batch(lm, rows, prefix, max_new_tokens).decode(max_new_tokens, is_end)
        answers.update(zip(batch, spoken, strict=True))
        listener.advance(len(batch))

    run_in_batches(batches, decoded_lengths(prompts, prefix, max_new_tokens), budget, run)
    listener.finish()
    return [answers[index] for index in range(len(prompts))]


def decoded_lengths(prompts: Sequence[tuple[int, ...]], prefix: Prefix, max_new_tokens: int) -> list[int]:
    """Tokens that each prompt takes in a batch, if its answer is of middle length."""
    return [len(prompt) - prefix.length + max_new_tokens // 2 for prompt in prompts]


class _Batch:
    """The rows of one batch while they are being generated."""

    def __init__(self, lm: LanguageModel, rows: Sequence[tuple[int, ...]], prefix: Prefix, max_new_tokens: int) -> None:
        self.lm = lm
        longest = max(len(row) for row in rows)
        self.pads = torch.tensor([longest - len(row) for row in rows], device=lm.device)
        self.ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=lm.device)
        self.prefix_length = prefix.length
        self.cache = Growing(prefix, len(rows), longest + max_new_tokens)
        self.tokens: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.finished = [False] * len(rows)
        self.active = list(range(len(rows)))

    def decode(self, max_new_tokens: int, is_end: IsEnd) -> list[Decoded]:
        step_ids = self.ids
        for _ in range(max_new_tokens + 1):  # one more than the longest answer, for its end
            log_probs = torch.log_softmax(self._step(step_ids), dim=-1)
            refuse_not_finite(log_probs.amax(dim=-1), self.lm)
            best, chosen = log_probs.max(dim=-1)
            self._note(chosen.tolist(), best.tolist(), is_end, max_new_tokens)
            if all(self.finished[row] for row in self.active):
                break
            step_ids = self._leave(chosen[:, None].to(self.lm.device))  # the head may be on another GPU
        return [
            Decoded(ids=tuple(ids[:max_new_tokens]), log_probs=tuple(probs[:max_new_tokens]), finished=finished)
            for ids, probs, finished in zip(self.tokens, self.log_probs, self.finished, strict=True)
        ]

    def _step(self, ids: Tensor) -> Tensor:
        """Logits after the last of the given tokens, for the active rows."""
        n_new, start = ids.shape[1], self.cache.filled
        columns = torch.arange(start + n_new, device=self.lm.device)
        pads = self.pads[:, None, None]
        own = columns[None, None, :] - self.prefix_length  # index among a row's own columns, padding included
        query = columns[start:][None, :, None]
        visible = (columns[None, None, :] <= query) & ((own < 0) | (own >= pads))
        visible |= columns[None, None, :] == query  # a padding query keeps itself, so that its row is not empty
        # A padded row's tokens stand `pads` columns to the right of their position.
        positions = (columns[start:][None, :] - self.pads[:, None]).clamp(min=0)

        def masks(layer: int) -> Tensor:
            window = self.lm.sliding_window(layer)
            if window is None:
                return full
            distance = query - columns[None, None, :] - torch.where(own < 0, pads, 0)
            return additive(visible & (distance < window), self.lm.dtype)

        full = additive(visible, self.lm.dtype)
        stream = run_layers(self.lm, ids, positions, masks, self.cache, lambda index, output: None)
        self.cache.advance(n_new)
        with torch.inference_mode():
            return self.lm.logits(stream[:, -1]).float()

    def _note(self, chosen: list[int], best: list[float], is_end: IsEnd, room: int) -> None:
        for row, token, log_prob in zip(self.active, chosen, best, strict=True):
            if self.finished[row]:
                continue
            if is_end(token, self.tokens[row]):
                self.finished[row] = True
            elif len(self.tokens[row]) < room:
                self.tokens[row].append(token)
                self.log_probs[row].append(log_prob)

    def _leave(self, chosen: Tensor) -> Tensor:
        """The next step's tokens, with finished rows gone where enough of them are."""
        going = [place for place, row in enumerate(self.active) if not self.finished[row]]
        if len(self.active) - len(going) < _LEAVE_SHARE * len(self.active):
            return chosen
        places = torch.tensor(going, device=self.lm.device)
        self.active = [self.active[place] for place in going]
        self.pads = self.pads[places]
        self.cache.keep(places)
        return chosen[places]
