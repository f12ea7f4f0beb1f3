"""The pass that asks how likely a few tokens are as the next one, planned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anchorscope.engine.batching import MOST_AT_ONCE, plan_batches
from anchorscope.engine.sequences import shared_prefix_length


@dataclass(frozen=True)
class ChoicesPass:
    """Prompts after which it is asked how likely a few tokens are as the next one."""

    title: str
    prompts: tuple[tuple[int, ...], ...]
    prefix: tuple[int, ...]
    """Leading tokens that all prompts share."""
    choices: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    items: tuple[int, ...] = ()
    """What the prompts of a shard are called in the whole pass; empty where this is the whole."""

    @property
    def n_items(self) -> int:
        """How many prompts are run."""
        return sum(len(batch) for batch in self.batches)

    def shards(self) -> "list[ChoicesPass]":
        """One per batch."""
        return [
            replace(
                self,
                prompts=tuple(self.prompts[one] for one in batch),
                batches=(tuple(range(len(batch))),),
                items=batch,
            )
            for batch in self.batches
        ]

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each prompt."""
        return [len(ids) - len(self.prefix) for ids in self.prompts]

    def replanned(self, tokens: int, n_layers: int) -> "ChoicesPass":
        """The same work in smaller batches."""
        batches = plan_batches(self.lengths(n_layers), min(tokens, MOST_AT_ONCE))
        return replace(self, batches=tuple(map(tuple, batches)), batch_tokens=tokens)


def plan_choices(
    title: str, prompts: Sequence[tuple[int, ...]], choices: Sequence[int], batch_tokens: int
) -> ChoicesPass:
    """The pass that asks after each prompt how likely the chosen tokens are."""
    shared = shared_prefix_length(prompts, [len(ids) - 1 for ids in prompts])
    whole = ChoicesPass(title, tuple(prompts), prompts[0][:shared], tuple(choices), (), batch_tokens)
    return whole.replanned(batch_tokens, 0)
