"""Answers in batches, greedy or sampled: the prefix's keys and values are reused, and finished rows leave the batch.

An answer ends where the caller says so, before the token that ends it. The log-probability of every answer token comes
along: the model's own, at whatever temperature the token was drawn. A prompt that is sampled many times is read once.
Steps of many rows cost hardly more than steps of few, so that as many answers as memory holds grow together.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.engine.batching import Budget, plan_batches, run_in_batches
from anchorscope.engine.forward import logits_in_parts, not_finite, run_layers
from anchorscope.engine.keys_values import Growing, Prefix
from anchorscope.engine.sampling import Sampling, draw_tokens
from anchorscope.engine.sequences import TokenSequence
from anchorscope.engine.steps import Step, read_prompts
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent

_LEAVE_SHARE = 0.25  # rows leave in groups: moving the keys and values of the rest costs about as much as one step


IsEnd = Callable[[int, Sequence[int]], bool]
"""Whether a token ends an answer, given those before it."""


@dataclass(frozen=True)
class Decoded:
    """One answer."""

    ids: tuple[int, ...]
    """The answer's tokens, without the line break or end token."""
    log_probs: tuple[float, ...]
    """Log-probability of each of them, as the model has it: temperature and top-p do not count."""
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
    sampling: Sampling | None = None,
) -> list[Decoded]:
    """An answer to each prompt (whole prompts, prefix included), greedy unless there is `sampling`.

    The budget is lowered where memory runs out.
    """
    listener = progress or Silent()
    listener.start(title, len(prompts))
    answers: dict[int, Decoded] = {}

    def run(batch: list[int]) -> None:
        at_once = budget.at_once if budget is not None else sys.maxsize
        rows = [prompts[index] for index in batch]
        drawn = None if sampling is None else sampling.take(batch)
        spoken = _Batch(lm, rows, prefix, max_new_tokens + 1, at_once, drawn).decode(max_new_tokens, is_end)
        answers.update(zip(batch, spoken, strict=True))
        listener.advance(len(batch))

    run_in_batches(batches, lambda: decoded_lengths(prompts, prefix.length, max_new_tokens), budget, run)
    listener.finish()
    return [answers[index] for index in range(len(prompts))]


def decoded_lengths(prompts: Sequence[tuple[int, ...]], n_prefix: int, max_new_tokens: int) -> list[int]:
    """Tokens that each prompt takes in a batch, if its answer is of middle length."""
    return [len(prompt) - n_prefix + max_new_tokens // 2 for prompt in prompts]


class _Batch:
    """The rows of one batch while they are being generated."""

    def __init__(
        self,
        lm: LanguageModel,
        rows: Sequence[tuple[int, ...]],
        prefix: Prefix,
        n_new: int,
        at_once: int,
        sampling: Sampling | None,
    ) -> None:
        """`rows` are whole prompts that grow by up to `n_new` tokens; at most `at_once` tokens of them run together."""
        self.lm, self.at_once, self.sampling = lm, at_once, sampling
        self.lengths = torch.tensor([len(row) for row in rows], device=lm.device)  # positions that are filled
        self.longest = max(len(row) for row in rows)
        different = list(dict.fromkeys(rows))
        self.cache = Growing(prefix, len(different), self.longest + n_new)
        self.tokens: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.finished = [False] * len(rows)
        self.active = list(range(len(rows)))
        self.ends = self._read(different, prefix)
        """Where the stream stands after each row's last token, [row, d_model]."""
        if len(different) < len(rows):
            place = {row: index for index, row in enumerate(different)}
            own = torch.tensor([place[row] for row in rows], device=lm.device)
            self.cache.keep(own)
            self.ends = self.ends[own]

    def decode(self, max_new_tokens: int, is_end: IsEnd) -> list[Decoded]:
        for step in range(max_new_tokens + 1):  # one more than the longest answer, for its end
            chosen, log_probs = self._choose(step)
            self._note(chosen.tolist(), log_probs.tolist(), is_end, max_new_tokens)
            if step == max_new_tokens or all(self.finished[row] for row in self.active):
                break
            self.ends = self._step(self._leave(chosen.to(self.lm.device)))  # the head may be on another GPU
        return [
            Decoded(ids=tuple(ids[:max_new_tokens]), log_probs=tuple(probs[:max_new_tokens]), finished=finished)
            for ids, probs, finished in zip(self.tokens, self.log_probs, self.finished, strict=True)
        ]

    def _read(self, rows: Sequence[tuple[int, ...]], prefix: Prefix) -> Float[Tensor, "row d_model"]:
        """Runs the prompts, some rows at a time, and fills the cache with their keys and values."""
        sequences = [TokenSequence(row, answer_start=len(row), read_at=()) for row in rows]
        ends = torch.empty(len(rows), self.lm.d_model, dtype=self.lm.dtype, device=self.lm.device)
        for part in plan_batches([len(row) - prefix.length for row in rows], self.at_once):
            read, found, _ = read_prompts(self.lm, sequences, part, prefix, self.cache, range(len(rows)))
            ends[read] = found
        return ends

    def _step(self, ids: Int[Tensor, " row"]) -> Float[Tensor, "row d_model"]:
        """Runs one token more of every active row."""
        self.longest += 1
        step = Step(self.lm, self.cache, self.lengths, self.longest)
        stream = run_layers(self.lm, ids, self.lengths, step, lambda index, output: None)
        self.lengths = self.lengths + 1
        return stream[0].to(self.lm.device)

    @torch.inference_mode()
    def _choose(self, step: int) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
        """The next token of every active row, the likeliest or one that is drawn, and its log-probability."""
        tokens, log_probs, done = [], [], 0
        drawn = None if self.sampling is None else torch.from_numpy(self.sampling.draws(self.active, step))
        for logits in logits_in_parts(self.lm, self.ends):
            if self.sampling is None or drawn is None:
                chosen, token = logits.max(dim=-1)
            else:
                token = draw_tokens(logits, self.sampling, drawn[done : done + len(logits)])
                chosen = logits.gather(1, token[:, None])[:, 0]
            tokens.append(token)
            log_probs.append(chosen - logits.logsumexp(dim=-1))
            done += len(logits)
        found = torch.cat(log_probs)
        if not bool(torch.isfinite(found).all()):
            raise not_finite(self.lm)
        return torch.cat(tokens), found

    def _note(self, chosen: list[int], log_probs: list[float], is_end: IsEnd, most: int) -> None:
        for row, token, log_prob in zip(self.active, chosen, log_probs, strict=True):
            if self.finished[row]:
                continue
            if is_end(token, self.tokens[row]):
                self.finished[row] = True
            elif len(self.tokens[row]) < most:
                self.tokens[row].append(token)
                self.log_probs[row].append(log_prob)

    def _leave(self, chosen: Tensor) -> Tensor:
        """The next step's tokens, with finished rows gone where enough of them are."""
        going = [place for place, row in enumerate(self.active) if not self.finished[row]]
        if len(self.active) - len(going) < _LEAVE_SHARE * len(self.active):
            return chosen
        indices = torch.tensor(going, device=self.lm.device)
        self.active = [self.active[place] for place in going]
        self.lengths = self.lengths[indices]
        self.cache.keep(indices)
        return chosen[indices]
