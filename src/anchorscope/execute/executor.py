"""An executor takes shards and gives their parts; here all of them are run in this process, one after the other.

A worker on another machine implements the same: it is handed shards, which are plain data, and hands back parts, which
are plain arrays and records.
Parts of a pass are merged by item, and only then is it checked that no cut passed in silence.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import NDArray

from anchorscope.answers.generate import Answer
from anchorscope.engine.answer_stats import AnswerStats
from anchorscope.engine.attention_mass import AttentionMass
from anchorscope.engine.capture import EdgeCounts, refuse_idle_cuts
from anchorscope.engine.saliency import Saliency
from anchorscope.execute.worker import (
    AnswersPart,
    AttentionPart,
    ChoicesPart,
    Part,
    SaliencyPart,
    SamplesPart,
    Shard,
    StatesPart,
    VariantPart,
    Worker,
)
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import (
    AnswersPass,
    AttentionPass,
    ChoicesPass,
    SaliencyPass,
    SamplesPass,
    StatesPass,
)
from anchorscope.progress import Progress


def merge_states(parts: Sequence[StatesPart]) -> StatesPart:
    """The whole pass."""
    edges = EdgeCounts.sum([part.edges for part in parts])
    refuse_idle_cuts(edges)
    if len(parts) == 1:
        return parts[0]
    variants = [_merge([part.variants[index] for part in parts]) for index in range(len(parts[0].variants))]
    log_probs = {item: found for part in parts for item, found in part.log_probs.items()}
    return StatesPart(tuple(variants), edges, log_probs)


def _merge(parts: Sequence[VariantPart]) -> VariantPart:
    items: NDArray[np.int64] = np.concatenate([part.items for part in parts])
    order = np.argsort(items, kind="stable")
    logits = [part.logits for part in parts if part.logits is not None]
    states = [part.states for part in parts if part.states is not None]
    answers = [part.answers for part in parts if part.answers is not None]
    return VariantPart(
        items[order],
        np.concatenate(logits)[order] if logits else None,
        torch.cat(states, dim=2)[:, :, torch.from_numpy(order)] if states else None,
        AnswerStats.join(answers).take(order) if answers else None,
    )


class Executor(Protocol):
    """Runs shards."""

    @property
    def n_shards(self) -> int:
        """How many shards a pass is best cut into."""
        ...

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        """The part of each shard, in their order."""
        ...


class LocalExecutor:
    """One worker in this process; the model is loaded when the first shard comes."""

    n_shards = 1

    def __init__(self, load: Callable[[], LanguageModel], lowered: Callable[[int], None] = lambda tokens: None) -> None:
        self._load, self._lowered = load, lowered

    @cached_property
    def worker(self) -> Worker:
        """The worker, with its model."""
        return Worker(self._load(), self._lowered)

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        """The part of each shard, in their order."""
        for shard in shards:
            yield self.worker.run(shard, progress)


def run_states(executor: Executor, work: StatesPass, progress: Progress) -> StatesPart:
    """A whole pass, its parts merged by item and checked: every cut took edges in every layer that it was asked for."""
    parts = [_of(StatesPart, part) for part in executor.map(work.shards(executor.n_shards), progress)]
    return merge_states(parts)


def run_answers(executor: Executor, work: AnswersPass, progress: Progress) -> list[Answer]:
    """Answers to all questions of a pass; nothing is run where all are known."""
    if len(work.known) == len(work.questions):
        return [work.known[index] for index in range(len(work.questions))]
    (part,) = executor.map(work.shards(executor.n_shards), progress)
    return _of(AnswersPart, part).answers


def run_samples(executor: Executor, work: SamplesPass, progress: Progress) -> list[list[Answer]]:
    """Sampled answers to all questions of a pass, each one's together."""
    (part,) = executor.map(work.shards(executor.n_shards), progress)
    return _of(SamplesPart, part).answers


def run_saliency(executor: Executor, work: SaliencyPass, progress: Progress) -> Saliency:
    """Saliency of all items of a pass."""
    (part,) = executor.map(work.shards(executor.n_shards), progress)
    return _of(SaliencyPart, part).found


def run_attention(executor: Executor, work: AttentionPass, progress: Progress) -> list[AttentionMass]:
    """The attention that each sequence's tokens receive, in the order of the sequences."""
    found: dict[int, AttentionMass] = {}
    for part in executor.map(work.shards(executor.n_shards), progress):
        found.update(_of(AttentionPart, part).found)
    return [found[index] for index in range(len(work.clean.sequences))]


def run_choices(executor: Executor, work: ChoicesPass, progress: Progress) -> Float[ndarray, "prompt choice"]:
    """Log-probabilities of the chosen tokens after every prompt, in the order of the prompts."""
    parts = [_of(ChoicesPart, part) for part in executor.map(work.shards(executor.n_shards), progress)]
    found = np.empty((len(work.prompts), len(work.choices)), dtype=np.float32)
    for part in parts:
        found[part.prompts] = part.log_probs
    return found


def _of(kind: type[Any], part: Part) -> Any:
    assert isinstance(part, kind), f"a worker gave {type(part).__name__} where {kind.__name__} was due"
    return part
