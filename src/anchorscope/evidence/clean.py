"""The clean pass: states of all items at every site and position, and how likely the model finds their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from anchorscope.answers.generate import Answer
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import SITES
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_states
from anchorscope.items import Item
from anchorscope.plan.passes import Planner
from anchorscope.progress import Progress


@dataclass(frozen=True)
class CleanStates:
    """What the clean pass gave."""

    states: Float[Tensor, "position site layer item d_model"]
    """In host memory, in the model's precision."""
    log_probs: list[tuple[float, ...]]
    """Log-probability of every token of each item's answer, where some were not generated here; else empty."""


class CleanRun(NamedTuple):
    """What one pass over the items as they are brings."""

    clean: CleanStates
    attention: list[AttentionMass]
    """How much attention the tokens of every item receive: what a control matched in attention goes by."""
    question_only: Float[Tensor, "1 layer item d_model"]
    """States at one site of the last token that has not seen the answer."""


def run_clean(
    executor: Executor,
    planner: Planner,
    items: Sequence[Item],
    positions: Sequence[str],
    progress: Progress,
    compiled: bool,
    edges: str,
    site: int,
) -> CleanRun:
    """Runs the used items as they are.

    `edges` says which later tokens count in the attention that tokens receive; `site` is where the question is read.
    """
    located, supplied = items[0].located, any(item.answer.log_probs is None for item in items)
    # The last token before an answer is read here, and predicts the answer's first one: it must not be shared.
    first = min(located.prefix_length, *(item.located.answer_start - 1 for item in items))
    sequences = [
        replace(one, read_at=(*one.read_at, one.answer_start - 1))
        for one in (item.sequence(positions) for item in items)
    ]
    work = planner.states("clean states", sequences, located.input_ids[:first], compiled=compiled)
    places = [(position, one) for position in range(len(positions)) for one in range(len(SITES))]
    keep = (*places, (len(positions), site))
    found = run_states(executor, replace(work, keep=(keep,), log_probs=supplied, attention=edges), progress)
    (clean,) = found.variants
    assert clean.states is not None, "a pass that is told to keep states keeps them"
    states = clean.states[: len(places)].unflatten(0, (len(positions), len(SITES)))
    log_probs = [found.log_probs.get(index, ()) for index in range(len(items))]
    attention = [found.attention[index] for index in range(len(items))]
    return CleanRun(CleanStates(states, log_probs), attention, clean.states[len(places) :])


def with_log_probs(answers: Sequence[Answer], log_probs: Sequence[tuple[float, ...]]) -> list[Answer]:
    """Answers that were given elsewhere come without log-probabilities: those of the clean pass take their place."""
    return [
        replace(answer, log_probs=known) if answer.log_probs is None and known else answer
        for answer, known in zip(answers, log_probs, strict=True)
    ]
