"""The clean pass: states of all items at every site and position, and how likely the model finds their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from anchorscope.answers.generate import Answer
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


def run_clean(
    executor: Executor, planner: Planner, items: Sequence[Item], positions: Sequence[str], progress: Progress,
    compiled: bool,
) -> CleanStates:  # fmt: skip
    """Runs the used items as they are."""
    located, supplied = items[0].located, any(item.answer.log_probs is None for item in items)
    # The last token before an answer predicts its first one: where that is asked for, it must be run here.
    first = min(item.located.answer_start for item in items) - 1 if supplied else located.prefix_length
    shared = located.input_ids[: min(first, located.prefix_length)]
    work = planner.states("clean states", [item.sequence(positions) for item in items], shared, compiled=compiled)
    places = tuple((position, site) for position in range(len(positions)) for site in range(len(SITES)))
    found = run_states(executor, replace(work, keep=(places,), log_probs=supplied), progress)
    (clean,) = found.variants
    assert clean.states is not None, "a pass that is told to keep states keeps them"
    states = clean.states.unflatten(0, (len(positions), len(SITES)))
    return CleanStates(states, [found.log_probs.get(index, ()) for index in range(len(items))])


def with_log_probs(answers: Sequence[Answer], log_probs: Sequence[tuple[float, ...]]) -> list[Answer]:
    """Answers that were given elsewhere come without log-probabilities: those of the clean pass take their place."""
    return [
        replace(answer, log_probs=known) if answer.log_probs is None and known else answer
        for answer, known in zip(answers, log_probs, strict=True)
    ]
