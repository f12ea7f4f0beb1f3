"""Whole passes: handed to an executor, their parts merged by item.

Only then is it checked that no cut passed in silence. Where memory runs out, on whichever worker, the whole pass is
planned again with half the tokens and run from its beginning, so that its numbers do not depend on where it happened.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from anchorscope.answers.generate import Answer, spoken_answers, thinkers
from anchorscope.engine.batching import too_long_for_memory
from anchorscope.engine.capture import AnswerStats, EdgeCounts, refuse_idle_cuts
from anchorscope.engine.decode import Decoded
from anchorscope.engine.saliency import Saliency, refuse_no_gradient
from anchorscope.errors import MemoryRanOut
from anchorscope.execute.executor import Executor
from anchorscope.execute.worker import Pass, StatesPart, VariantPart
from anchorscope.plan.passes import (
    AnswersPass,
    ChoicesPass,
    DecodePass,
    SaliencyPass,
    StatesPass,
)
from anchorscope.progress import Progress


def run_states(executor: Executor, work: StatesPass, progress: Progress) -> StatesPart:
    """A whole pass, its parts merged by item and checked: every cut took edges in every layer that it was asked for."""
    ran = _run(executor, work, progress)
    whole = merge_states([placed(shard.items, part) for shard, part in ran])
    files = ran[0][0].into
    variants = [
        variant if file is None else replace(variant, states=file.map())
        for variant, file in zip_longest(whole.variants, files)
    ]
    return replace(whole, variants=tuple(variants))


def merge_states(parts: Sequence[StatesPart]) -> StatesPart:
    """The whole pass, checked: every cut took edges in every layer that it was asked for; one part is the whole."""
    edges = EdgeCounts.sum([part.edges for part in parts])
    refuse_idle_cuts(edges)
    if len(parts) == 1:
        return parts[0]
    variants = tuple(
        map(_merge_variant, zip(*(part.variants for part in parts), strict=True))
    )
    log_probs = {
        item: numbers for part in parts for item, numbers in part.log_probs.items()
    }
    attention = {item: mass for part in parts for item, mass in part.attention.items()}
    return StatesPart(variants, edges, log_probs, attention)


def _merge_variant(parts: Sequence[VariantPart]) -> VariantPart:
    """One variant of all shards, its items in order."""
    items = np.concatenate([part.items for part in parts])
    order = np.argsort(items)
    items = items[order]
    assert not (items[1:] == items[:-1]).any(), "two parts have the same item"
    logits = [part.logits for part in parts if part.logits is not None]
    answers = [part.answers for part in parts if part.answers is not None]
    states = [part.states for part in parts if part.states is not None]
    in_order = torch.from_numpy(order)
    return VariantPart(
        items,
        np.concatenate(logits)[order] if logits else None,
        torch.cat(states, dim=2)[:, :, in_order] if states else None,
        AnswerStats.join(answers).take(order.tolist()) if answers else None,
    )


def placed(items: Sequence[int], part: StatesPart) -> StatesPart:
    """The part of a shard, with the numbers that its items have in the whole pass."""
    if not items:
        return part
    names = np.array(items, dtype=np.int64)
    variants = tuple(
        replace(variant, items=names[variant.items]) for variant in part.variants
    )
    log_probs = {items[item]: numbers for item, numbers in part.log_probs.items()}
    attention = {items[item]: mass for item, mass in part.attention.items()}
    return StatesPart(variants, part.edges, log_probs, attention)


def run_answers(
    executor: Executor, work: AnswersPass, progress: Progress
) -> list[Answer]:
    """Answers to all questions of a pass; nothing is run where all are known.

    Few models think when told not to, so only theirs are asked again, with room for it.
    """
    answers, asked = dict(work.known), work.asked
    if asked:
        decoded = run_decoding(executor, work.decoding(asked), progress)
        if work.template.kind == "chat":
            prompts = [work.prompts[index].ids for index in asked]
            again = thinkers(
                work.tokenizer, prompts, decoded, work.max_new_tokens, work.context
            )
            if again:
                longer = run_decoding(
                    executor,
                    work.decoding([asked[at] for at in again], thinking=True),
                    progress,
                )
                for at, text in zip(again, longer, strict=True):
                    decoded[at] = text
        spoken = spoken_answers(
            work.tokenizer, work.template, decoded, work.max_new_tokens
        )
        answers |= zip(asked, spoken, strict=True)
    return [answers[index] for index in range(len(work.prompts))]


def run_decoding(
    executor: Executor, work: DecodePass, progress: Progress
) -> list[Decoded]:
    decoded: dict[int, Decoded] = {}
    for shard, texts in _run(executor, work, progress):
        decoded.update(zip(shard.items or range(len(texts)), texts, strict=True))
    return [decoded[index] for index in range(len(work.prompts))]


def run_saliency(
    executor: Executor, work: SaliencyPass, progress: Progress
) -> Saliency:
    parts = _run(executor, work, progress)
    first = parts[0][1]
    values = np.empty(
        (len(work.sequences), *first.values.shape[1:]), dtype=first.values.dtype
    )
    for shard, part in parts:
        values[list(shard.items or range(len(values)))] = part.values
    return refuse_no_gradient(Saliency(values, first.sets))


def run_choices(
    executor: Executor, work: ChoicesPass, progress: Progress
) -> Float[ndarray, "prompt choice"]:
    """Log-probabilities of the chosen tokens after every prompt, in the order of the prompts."""
    log_probs = np.empty((len(work.prompts), len(work.choices)), dtype=np.float32)
    for shard, part in _run(executor, work, progress):
        log_probs[list(shard.items or range(len(log_probs)))] = part
    return log_probs


def _run(executor: Executor, work: Any, progress: Progress) -> list[tuple[Any, Any]]:
    """Every shard of a pass and its part; where memory ran out, all of the pass, planned smaller, is run again."""
    while True:
        try:
            shards = executor.divide(work)
            return list(zip(shards, executor.map(shards, progress), strict=True))
        except MemoryRanOut:
            work = _halved(executor, work)


def _halved(executor: Executor, work: Pass) -> Pass:
    n_layers = executor.n_layers
    lengths = work.lengths(n_layers)
    sizes = [
        (max(lengths[item] for item in batch), len(batch)) for batch in work.batches
    ]
    if all(n == 1 for _, n in sizes):
        raise too_long_for_memory(max(longest for longest, _ in sizes))
    tokens = max(longest * n for longest, n in sizes if n > 1) // 2
    # passes without gradients, which need far less, keep their number
    if not isinstance(work, SaliencyPass):
        executor.lowered(tokens)
    return work.replanned(tokens, n_layers)
