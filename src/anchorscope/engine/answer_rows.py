"""One answer under way in a batch that changes: what is wanted of it, what is known of it, and its next token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.engine.answer_stats import STATISTICS, logits_statistics
from anchorscope.engine.decode import Decoded, IsEnd
from anchorscope.engine.sampling import Sampling, draw_tokens, step_numbers
from anchorscope.engine.shelves import Shelf
from anchorscope.engine.steps import SitePlace, States
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Drawing:
    """How one row's tokens are drawn."""

    seed: int
    """A random number of 64 bits, which all of its draws depend on."""
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Order:
    """What is wanted of one row."""

    prompt: tuple[int, ...]
    """All of its tokens."""
    max_new_tokens: int
    is_end: IsEnd
    n_shared: int = 0
    """Leading tokens that other prompts have too: their keys and values are computed once; fewer than all."""
    drawing: Drawing | None = None
    """Greedy without."""
    places: tuple[SitePlace, ...] = ()
    """Whose states are kept."""
    statistics: bool = False
    """Whether margin and entropy are wanted too; the log-probability always is."""
    longer: Callable[[Sequence[int]], int] | None = None
    """Asked once where the answer is as long as it may be: how long it may be after all."""


@dataclass(eq=False)
class Row:
    """One answer under way."""

    order: Order
    room: int
    """How many tokens the answer may have."""
    length: int = 0
    """How many tokens have keys and values."""
    ids: list[int] = field(default_factory=list)
    """The answer so far."""
    told: list[tuple[float, ...]] = field(default_factory=list)
    """`STATISTICS` of each of them; margin and entropy are NaN where nobody wants them."""
    seen: list[tuple[States, int]] = field(default_factory=list)
    """States at the prompt's last token and at each of the answer's that was fed, and which row of them is its own."""
    finished: bool = False
    """Whether the answer ended by itself."""
    over: bool = False
    """Whether nothing more comes: it has ended, is as long as it may be, failed or was dropped."""
    error: UserError | None = None
    """Why it failed."""
    shelf: "Shelf[Row] | None" = None

    @property
    def n_slots(self) -> int:
        """Tokens that it may come to, the one after its last included."""
        return len(self.order.prompt) + self.room + 1

    @property
    def is_read(self) -> bool:
        """Whether the whole prompt has keys and values."""
        return self.length >= len(self.order.prompt)

    def state(self, place: SitePlace, position: int) -> Float[Tensor, " d_model"]:
        """The state at a position: the prompt's last one, or one of an answer's token that was fed."""
        states, row = self.seen[position - len(self.order.prompt) + 1]
        return states[place][row]

    def decoded(self) -> Decoded:
        """The answer as `decode` tells it."""
        return Decoded(tuple(self.ids), tuple(one[0] for one in self.told), self.finished)


def next_tokens(logits: Float[Tensor, "row vocab"], rows: Sequence[Row]) -> Int[Tensor, " row"]:
    """The likeliest token of each row, or one that is drawn as the row wants it."""
    tokens = logits.max(dim=-1).indices
    kinds: dict[tuple[float, float], list[int]] = {}
    for place, row in enumerate(rows):
        if row.order.drawing is not None:
            kinds.setdefault((row.order.drawing.temperature, row.order.drawing.top_p), []).append(place)
    for (temperature, top_p), places in kinds.items():
        drawn = [one for one in (rows[place].order.drawing for place in places) if one is not None]
        seeds = np.array([one.seed for one in drawn], dtype=np.uint64)
        steps = np.array([len(rows[place].ids) for place in places], dtype=np.uint64)
        numbers = torch.from_numpy(step_numbers(seeds, steps))
        tokens[places] = draw_tokens(logits[places], Sampling(seeds, temperature, top_p), numbers)
    return tokens


def told_of(
    logits: Float[Tensor, "row vocab"], tokens: Int[Tensor, " row"], rows: Sequence[Row]
) -> Float[Tensor, "statistic row"]:
    """`STATISTICS` of the rows' tokens: margin and entropy only where they are wanted, NaN elsewhere."""
    whole = [place for place, row in enumerate(rows) if row.order.statistics]
    if len(whole) == len(rows):
        return logits_statistics(logits, tokens)
    told = logits.new_full((len(STATISTICS), len(rows)), float("nan"))
    told[0] = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)
    if whole:
        told[:, whole] = logits_statistics(logits[whole], tokens[whole])
    return told
