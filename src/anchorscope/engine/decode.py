"""Answers in batches, greedy or sampled: the prefix's keys and values are reused, finished rows leave the batch.

An answer ends where the caller says so, before the token that ends it. Log-probabilities are the model's own, at any
temperature. A prompt that is sampled many times is read once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from numpy import ndarray
from torch import Tensor

from anchorscope.engine.batching import MOST_AT_ONCE, plan_batches
from anchorscope.engine.forward import (
    MASK_WIDTH,
    Packed,
    Prefix,
    additive,
    logits_in_parts,
    not_finite,
    run_layers,
    visible,
)
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import CLEAN, TokenSequence
from anchorscope.models.devices import to_device
from anchorscope.models.families import Keys, Queries, masked_attention, per_group
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent
from anchorscope.stats.streams import mixed, uniform


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: temperature, then the nucleus (top-p), then one number per prompt and step.

    The number depends on the prompt's seed and the step, never on the batch: the same seed gives the same answer, up to
    the rounding of its logits.
    """

    seeds: UInt64[ndarray, " prompt"]
    """A random number per prompt; a prompt that is sampled twice needs two."""
    temperature: float = 1.0
    top_p: float = 1.0
    """Tokens are drawn from the likeliest ones that together have at least this probability."""

    def take(self, prompts: Sequence[int]) -> "Sampling":
        return Sampling(self.seeds[list(prompts)], self.temperature, self.top_p)


def step_numbers(
    seeds: UInt64[ndarray, " row"], steps: UInt64[ndarray, " row"] | np.uint64
) -> Float[ndarray, " row"]:
    """Uniform numbers in [0, 1) by seed and step."""
    return uniform(mixed(seeds, steps + np.uint64(1)))


def distribution(
    logits: Float[Tensor, "row vocab"], temperature: float, top_p: float
) -> Float[Tensor, "row vocab"]:
    """Probabilities after temperature and top-p, as transformers has them, float32."""
    # Less the highest first: however low the temperature, that one stays a number.
    below = logits - logits.amax(dim=-1, keepdim=True)
    probabilities = torch.softmax(
        below / max(temperature, torch.finfo(below.dtype).tiny), dim=-1
    )
    if top_p == 1:
        return probabilities
    ordered, ids = probabilities.sort(
        dim=-1, stable=True
    )  # least likely first: small sums keep their digits
    out = ordered.cumsum(dim=-1, dtype=torch.double) <= 1 - top_p
    out[:, -1] = False
    nucleus = torch.zeros_like(probabilities).scatter_(
        1, ids, ordered.masked_fill_(out, 0)
    )
    return nucleus / nucleus.sum(dim=-1, keepdim=True)


def draw_tokens(
    logits: Float[Tensor, "row vocab"], sampling: Sampling, draws: Float[Tensor, " row"]
) -> Int[Tensor, " row"]:
    """The token of each row at which the cumulated probabilities, in float64, pass the row's number."""
    passed = distribution(logits, sampling.temperature, sampling.top_p).cumsum(
        dim=-1, dtype=torch.double
    )
    wanted = draws.to(passed)[:, None] * passed[:, -1:]
    # Right of all that do not exceed it: a token of probability 0 adds nothing, and is never chosen.
    return torch.searchsorted(passed, wanted, right=True)[:, 0].clamp(
        max=logits.shape[-1] - 1
    )


class Growing:
    """Keys and values of growing answers, a row each: slot = position; finished rows leave.

    transformers' caches truncate sliding layers and can't share a prefix among the rows of a batch.
    """

    def __init__(self, prefix: Prefix, rows: int, n_slots: int) -> None:
        self.prefix = prefix
        self.rows = rows
        self.n_slots = n_slots
        self.stores: list[tuple[Tensor, Tensor]] = []

    def write(
        self,
        rows: Int[Tensor, " token"],
        slots: Int[Tensor, " token"],
        layer: int,
        key: Keys,
        value: Keys,
    ) -> tuple[
        Float[Tensor, "row slot key_head d_head"],
        Float[Tensor, "row slot key_head d_value"],
    ]:
        if layer == len(self.stores):
            self.stores.append(
                (self._store(key, layer), self._store(value, layer, values=True))
            )
        keys, values = self.stores[layer]
        rows, slots = rows.to(key.device), slots.to(key.device)
        keys[rows, slots], values[rows, slots] = key, value
        return keys, values

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.stores = [
            (keys[rows.to(keys.device)], values[rows.to(keys.device)])
            for keys, values in self.stores
        ]

    def _store(self, like: Tensor, layer: int, values: bool = False) -> Tensor:
        # Zeros, because slots that are masked must still hold numbers.
        store = like.new_zeros(self.rows, self.n_slots, *like.shape[1:])
        if self.prefix.length:
            store[:, : self.prefix.length] = (
                self.prefix.values if values else self.prefix.keys
            )[layer]
        return store


class Step:
    """Attention of one new token per row over all that came before it."""

    def __init__(
        self, lm: LanguageModel, cache: Growing, slots: Tensor, longest: int
    ) -> None:
        self.lm, self.cache, self.slots = lm, cache, slots
        self.n_keys = min(-(-longest // MASK_WIDTH) * MASK_WIDTH, cache.n_slots)
        self.rows = torch.arange(len(slots), device=slots.device)
        self.masks: dict[tuple[int | None, torch.device], Tensor] = {}

    def enter(self, layer: int) -> None:
        self.layer = layer
        window, device = self.lm.sliding_window(layer), self.lm.layer_device(layer)
        if (window, device) not in self.masks:
            seen = visible(self.slots[:, None], self.n_keys, window)
            self.masks[window, device] = additive(seen, self.lm.dtype).to(device)
        self.mask = self.masks[window, device]

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        scaling: float,
        softcap: float | None,
    ) -> Float[Tensor, "token head d_value"]:
        """Each token sees its row's keys, its own included; further rows of the cache are ignored."""
        keys, values = self.cache.write(self.rows, self.slots, self.layer, key, value)
        mask = per_group(self.mask, query.shape[1] // key.shape[1])
        n = len(self.slots)
        keys, values = keys[:n, : self.n_keys], values[:n, : self.n_keys]
        return masked_attention(query[:, None], keys, values, mask, scaling, softcap)[
            :, 0
        ]


_LEAVE_SHARE = 0.25  # rows leave in groups: moving the keys and values of the rest costs about as much as one step

IsEnd = Callable[[int, Sequence[int]], bool]
"""Whether a token ends an answer, given those before it."""


@dataclass(frozen=True)
class Decoded:
    ids: tuple[int, ...]
    """Without the line break or end token."""
    log_probs: tuple[float, ...]
    """As the model has it, before temperature and top-p."""
    finished: bool
    """False if truncated."""


def decode(
    lm: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    max_new_tokens: int,
    is_end: IsEnd,
    progress: Progress | None = None,
    at_once: int = MOST_AT_ONCE,
    title: str = "answers",
    sampling: Sampling | None = None,
) -> list[Decoded]:
    """An answer to each whole prompt, greedy unless there is `sampling`; at most `at_once` tokens are read together."""
    listener = progress or Silent()
    listener.start(title, len(prompts))
    answers: dict[int, Decoded] = {}
    for batch in batches:
        rows = [prompts[index] for index in batch]
        drawn = None if sampling is None else sampling.take(batch)
        decoded = DecodingBatch(
            lm, rows, prefix, max_new_tokens + 1, at_once, drawn
        ).decode(max_new_tokens, is_end)
        answers.update(zip(batch, decoded, strict=True))
        listener.advance(len(batch))
    listener.finish()
    return [answers[index] for index in range(len(prompts))]


def decoded_lengths(
    prompts: Sequence[tuple[int, ...]], n_prefix: int, max_new_tokens: int
) -> list[int]:
    """Tokens that each prompt takes in a batch, if its answer is of middle length."""
    return [len(prompt) - n_prefix + max_new_tokens // 2 for prompt in prompts]


class DecodingBatch:
    """Answers to several prompts, decoded together."""

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
        # positions that are filled
        self.lengths = torch.tensor([len(row) for row in rows], device=lm.device)
        self.longest = max(len(row) for row in rows)
        different = list(dict.fromkeys(rows))
        self.cache = Growing(prefix, len(different), self.longest + n_new)
        self.tokens: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.finished = [False] * len(rows)
        self.active = list(range(len(rows)))
        self.ends = self._read(different, prefix)
        """The stream after each row's last token, [row, d_model]."""
        if len(different) < len(rows):
            index_of = {row: index for index, row in enumerate(different)}
            own = torch.tensor([index_of[row] for row in rows], device=lm.device)
            self.cache.keep(own)
            self.ends = self.ends[own]

    def decode(self, max_new_tokens: int, is_end: IsEnd) -> list[Decoded]:
        # one more than the longest answer, for its end
        for step in range(max_new_tokens + 1):
            chosen, log_probs = self._choose(step)
            self._note(chosen.tolist(), log_probs.tolist(), is_end, max_new_tokens)
            if step == max_new_tokens or all(self.finished[row] for row in self.active):
                break
            # the head may be on another GPU
            self.ends = self._step(self._leave(chosen.to(self.lm.device)))
        return [
            Decoded(
                ids=tuple(ids[:max_new_tokens]),
                log_probs=tuple(probs[:max_new_tokens]),
                finished=finished,
            )
            for ids, probs, finished in zip(
                self.tokens, self.log_probs, self.finished, strict=True
            )
        ]

    def _read(
        self, rows: Sequence[tuple[int, ...]], prefix: Prefix
    ) -> Float[Tensor, "row d_model"]:
        """Runs the prompts, some rows at a time, and fills the cache."""
        sequences = [
            TokenSequence(row, answer_start=len(row), read_at=()) for row in rows
        ]
        ends = torch.empty(
            len(rows), self.lm.d_model, dtype=self.lm.dtype, device=self.lm.device
        )
        for part in plan_batches(
            [len(row) - prefix.length for row in rows], self.at_once
        ):
            layout = BatchRows(
                sequences, part, [CLEAN], prefix.length, self.lm.n_layers
            )
            row_of_token = torch.tensor(
                [row.item for row in layout.rows for _ in range(row.first, row.stop)]
            )
            owners, slots = (
                to_device(index, self.lm.device)
                for index in (row_of_token, layout.positions())
            )
            packed = Packed(
                self.lm,
                sequences,
                layout,
                prefix,
                partial(self.cache.write, owners, slots),
            )
            stream = run_layers(
                self.lm,
                packed.ids,
                packed.positions,
                packed,
                read=torch.from_numpy(layout.own[1:] - 1),
            )
            ends[[row.item for row in layout.rows]] = stream[0].to(self.lm.device)
        return ends

    def _step(self, ids: Int[Tensor, " row"]) -> Float[Tensor, "row d_model"]:
        """Runs one more token of every active row."""
        self.longest += 1
        step = Step(self.lm, self.cache, self.lengths, self.longest)
        stream = run_layers(self.lm, ids, self.lengths, step)
        self.lengths = self.lengths + 1
        return stream[0].to(self.lm.device)

    @torch.inference_mode()
    def _choose(self, step: int) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
        """The next token of every active row and its log-probability."""
        tokens, log_probs, done = [], [], 0
        numbers = None
        if self.sampling is not None:
            numbers = torch.from_numpy(
                step_numbers(self.sampling.seeds[self.active], np.uint64(step))
            )
        for logits in logits_in_parts(self.lm, self.ends):
            if self.sampling is None or numbers is None:
                chosen, token = logits.max(dim=-1)
            else:
                token = draw_tokens(
                    logits, self.sampling, numbers[done : done + len(logits)]
                )
                chosen = logits.gather(1, token[:, None])[:, 0]
            tokens.append(token)
            log_probs.append(chosen - logits.logsumexp(dim=-1))
            done += len(logits)
        chosen_log_probs = torch.cat(log_probs)
        if not bool(torch.isfinite(chosen_log_probs).all()):
            raise not_finite(self.lm)
        return torch.cat(tokens), chosen_log_probs

    def _note(
        self, chosen: list[int], log_probs: list[float], is_end: IsEnd, most: int
    ) -> None:
        for row, token, log_prob in zip(self.active, chosen, log_probs, strict=True):
            if self.finished[row]:
                continue
            if is_end(token, self.tokens[row]):
                self.finished[row] = True
            elif len(self.tokens[row]) < most:
                self.tokens[row].append(token)
                self.log_probs[row].append(log_prob)

    def _leave(self, chosen: Tensor) -> Tensor:
        """The next step's tokens, without finished rows where enough of them are."""
        going = [
            index for index, row in enumerate(self.active) if not self.finished[row]
        ]
        if len(self.active) - len(going) < _LEAVE_SHARE * len(self.active):
            return chosen
        indices = torch.tensor(going, device=self.lm.device)
        self.active = [self.active[index] for index in going]
        self.lengths = self.lengths[indices]
        self.cache.keep(indices)
        return chosen[indices]


@torch.inference_mode()
def choice_log_probs(
    lm: LanguageModel,
    prompts: Sequence[tuple[int, ...]],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    choices: Sequence[int],
    progress: Progress | None = None,
    title: str = "choices",
) -> Float[Tensor, "prompt choice"]:
    """Log-probabilities of the chosen tokens after each whole prompt (prefix included), in host memory."""
    listener = progress or Silent()
    listener.start(title, sum(len(batch) for batch in batches))
    sequences = [
        TokenSequence(ids, answer_start=len(ids), read_at=()) for ids in prompts
    ]
    log_probs = torch.zeros(len(prompts), len(choices))
    for batch in batches:
        rows = BatchRows(sequences, batch, [CLEAN], prefix.length, lm.n_layers)
        packed = Packed(lm, sequences, rows, prefix)
        last = torch.from_numpy(rows.own[1:] - 1)
        stream = run_layers(lm, packed.ids, packed.positions, packed, read=last)[0]
        parts = [
            logits[:, list(choices)] - logits.logsumexp(dim=-1, keepdim=True)
            for logits in logits_in_parts(lm, stream)
        ]
        log_probs[[row.item for row in rows.rows]] = torch.cat(parts).cpu()
        listener.advance(len(batch))
        del rows, packed, stream, parts  # the next batch needs their memory
    if not bool(torch.isfinite(log_probs).all()):
        raise not_finite(lm)
    listener.finish()
    return log_probs
