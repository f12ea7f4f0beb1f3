"""Continuous batching: rows join a batch between two steps, and leave it when they end or are dropped.

Prompts of joining rows are read first, in short parts; then every row gets one token. A row doesn't depend on what runs
beside it, up to rounding. States at chosen sites are kept, of a prompt's last token and of every token fed, so that a
finished answer needs no second pass. All work happens in the calling thread.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.engine.batching import too_long_for_memory
from anchorscope.engine.capture import STATISTICS, logits_statistics
from anchorscope.engine.decode import (
    Decoded,
    Growing,
    IsEnd,
    Sampling,
    SitePlace,
    StateReader,
    States,
    Step,
    draw_tokens,
    read_prompts,
    step_numbers,
)
from anchorscope.engine.forward import NO_PREFIX, compute_prefix, logits_in_parts, not_finite, run_layers
from anchorscope.engine.sequences import TokenSequence
from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.families import Keys, Queries
from anchorscope.models.language_model import LanguageModel

_NARROWEST = 64  # slots of the shelf for the shortest rows; each next one has twice as many
_KEPT = 1024  # slots that an unused shelf keeps


class Shelf:
    """Rows of a cache for at most `n_slots` tokens each.

    A row knows its longest length, so no slot is ever copied for lack of room, and one long conversation doesn't widen
    all rows. Freed indices go to the next rows, or to the last of the shelf.
    """

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.rows: list[Row | None] = []
        """None for a freed index."""
        self.cache = self._empty()

    def _empty(self) -> Growing:
        return Growing(NO_PREFIX, max(1, _KEPT // self.n_slots), self.n_slots)

    def place_of(self, row: "Row") -> int:
        return next(index for index, other in enumerate(self.rows) if other is row)

    def put(self, row: "Row") -> int:
        """An index for a row: a freed one, or a new one; the cache doubles when full."""
        if None in self.rows:
            index = self.rows.index(None)
            self.rows[index] = row
            return index
        if len(self.rows) == self.cache.rows:
            self.cache.grow(2 * self.cache.rows)
        self.rows.append(row)
        return len(self.rows) - 1

    def take_away(self, row: "Row", spoiled: bool = False) -> None:
        """Frees a row's index; values that aren't finite are cleared."""
        index = self.place_of(row)
        self.rows[index] = None
        if spoiled:
            self.cache.clear(index)
        if not any(self.rows):
            self.rows = []
            if self.cache.rows * self.n_slots > _KEPT:
                self.cache = self._empty()

    def close_up(self, share: float) -> None:
        """Moves rows from the end to freed indices, where these are at least this share of all."""
        free = [index for index, row in enumerate(self.rows) if row is None]
        if not free or len(free) < share * len(self.rows):
            return
        n = len(self.rows) - len(free)
        moving = [index for index in range(n, len(self.rows)) if self.rows[index] is not None]
        targets = free[: len(moving)]
        if moving:
            rows = [self.rows[index] for index in moving]
            longest = max(row.length for row in rows if row is not None)
            self.cache.move(torch.tensor(moving), torch.tensor(targets), longest)
            for target, row in zip(targets, rows, strict=True):
                self.rows[target] = row
        del self.rows[n:]


def width_of(n_slots: int) -> int:
    """The slots that a row takes: a power of two."""
    width = _NARROWEST
    while width < n_slots:
        width *= 2
    return width


@dataclass(frozen=True)
class Drawing:
    seed: int
    """64 random bits that all draws depend on."""
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Order:
    prompt: tuple[int, ...]
    max_new_tokens: int
    is_end: IsEnd
    n_shared: int = 0
    """Leading tokens shared with other prompts: their keys and values are computed once."""
    drawing: Drawing | None = None
    places: tuple[SitePlace, ...] = ()
    statistics: bool = False
    """Whether margin and entropy are wanted too."""
    longer: Callable[[Sequence[int]], int] | None = None
    """Called once when the answer reaches its longest length: the new longest length."""


@dataclass(eq=False)
class Row:
    order: Order
    room: int
    length: int = 0
    ids: list[int] = field(default_factory=list)
    told: list[tuple[float, ...]] = field(default_factory=list)
    """`STATISTICS` of each token; margin and entropy are NaN unless wanted."""
    seen: list[tuple[States, int]] = field(default_factory=list)
    """States at the prompt's last token and at each fed answer token, with the row's index in them."""
    finished: bool = False
    over: bool = False
    """Whether it has ended: finished, at its longest, failed or dropped."""
    error: UserError | None = None
    shelf: Shelf | None = None

    @property
    def n_slots(self) -> int:
        return len(self.order.prompt) + self.room + 1

    @property
    def is_read(self) -> bool:
        return self.length >= len(self.order.prompt)

    def state(self, site: SitePlace, position: int) -> Float[Tensor, " d_model"]:
        """The state at a position: the prompt's last one, or one of an answer's token that was fed."""
        states, row = self.seen[position - len(self.order.prompt) + 1]
        return states[site][row]

    def decoded(self) -> Decoded:
        return Decoded(tuple(self.ids), tuple(statistics[0] for statistics in self.told), self.finished)


def next_tokens(logits: Float[Tensor, "row vocab"], rows: Sequence[Row]) -> Int[Tensor, " row"]:
    """The likeliest token of each row, or a sampled one."""
    tokens = logits.max(dim=-1).indices
    kinds: dict[tuple[float, float], list[int]] = {}
    for index, row in enumerate(rows):
        if row.order.drawing is not None:
            kinds.setdefault((row.order.drawing.temperature, row.order.drawing.top_p), []).append(index)
    for (temperature, top_p), places in kinds.items():
        drawings = [drawing for drawing in (rows[index].order.drawing for index in places) if drawing is not None]
        seeds = np.array([drawing.seed for drawing in drawings], dtype=np.uint64)
        steps = np.array([len(rows[index].ids) for index in places], dtype=np.uint64)
        numbers = torch.from_numpy(step_numbers(seeds, steps))
        tokens[places] = draw_tokens(logits[places], Sampling(seeds, temperature, top_p), numbers)
    return tokens


def row_statistics(
    logits: Float[Tensor, "row vocab"], tokens: Int[Tensor, " row"], rows: Sequence[Row]
) -> Float[Tensor, "statistic row"]:
    """`STATISTICS` of the rows' tokens: margin and entropy only where wanted, NaN elsewhere."""
    whole = [index for index, row in enumerate(rows) if row.order.statistics]
    if len(whole) == len(rows):
        return logits_statistics(logits, tokens)
    statistics = logits.new_full((len(STATISTICS), len(rows)), float("nan"))
    statistics[0] = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)
    if whole:
        statistics[:, whole] = logits_statistics(logits[whole], tokens[whole])
    return statistics


_PREFIXES = 8  # shared beginnings whose keys and values are held at a time
_READ_AT_ONCE = 8192  # tokens of prompts that are read between two steps
_LEAVE_SHARE = 0.25  # places given up, of all, from which on rows move
_ON_CPU = (256, 0.0)  # the same on a CPU: a step of many tokens takes longer there, and idle rows cost more


class Continuous:
    def __init__(self, lm: LanguageModel, read_at_once: int | None = None) -> None:
        """At most `read_at_once` tokens of prompts are read between two steps."""
        self.lm = lm
        at_once, self.share = _ON_CPU if lm.device.type == "cpu" else (_READ_AT_ONCE, _LEAVE_SHARE)
        self.read_at_once = self.most_read = read_at_once or at_once
        self._shelves: dict[int, Shelf] = {}
        self.waiting: deque[Row] = deque()
        """Rows whose prompts aren't fully read yet."""
        self._prefix = lru_cache(_PREFIXES)(lambda ids: compute_prefix(lm, ids))

    def __len__(self) -> int:
        return len({id(row) for row in [*self.waiting, *self._standing()]})

    def _standing(self) -> list[Row]:
        return [row for shelf in self._in_use() for row in shelf.rows if row is not None]

    def _wide_enough(self, n_slots: int) -> Shelf:
        width = width_of(n_slots)
        return self._shelves.setdefault(width, Shelf(width))

    def _in_use(self) -> list[Shelf]:
        """Shelves with a row, the narrowest first."""
        return [self._shelves[width] for width in sorted(self._shelves) if self._shelves[width].rows]

    def join(self, order: Order) -> Row:
        row = Row(order, order.max_new_tokens)
        self.waiting.append(row)
        return row

    @torch.inference_mode()
    def drop(self, row: Row) -> None:
        row.over = True
        if row in self.waiting:
            self.waiting.remove(row)
        self._leave(row)

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Reads some of the waiting prompts, then one more token for every row; the rows that advanced or ended."""
        touched = dict.fromkeys(self._read())
        for shelf in self._in_use():
            shelf.close_up(self.share)
        touched |= dict.fromkeys(self._feed())
        return list(touched)

    def _read(self) -> list[Row]:
        """Reads waiting prompts, up to the limit; those fully read have a token now."""
        taken: list[tuple[Row, int]] = []
        left = self.read_at_once
        for _ in range(len(self.waiting)):
            row = self.waiting[0]
            start = max(row.length, row.order.n_shared)
            missing = len(row.order.prompt) - start
            if taken and missing > left:
                break
            self.waiting.popleft()
            taken.append((row, min(len(row.order.prompt), start + left)))
            left -= min(missing, left)
        done: list[Row] = []
        for group in self._alike(taken):
            limit = self.read_at_once
            done += self._try(partial(self._read_part, group), [row for row, _ in group])
            if self.read_at_once == limit:  # memory sufficed: back, by and by, to what was wanted
                self.read_at_once = min(self.most_read, 2 * limit)
        for row, _ in taken:  # the rest of a long one comes after those who wait already
            if not row.is_read and not row.over:
                self.waiting.append(row)
        return done

    def _alike(self, taken: Sequence[tuple[Row, int]]) -> list[list[tuple[Row, int]]]:
        """Rows that can be read in one pass: same beginning, same shelf; a half-read one goes alone."""
        groups: dict[tuple[object, ...], list[tuple[Row, int]]] = {}
        for row, stop in taken:
            shared = row.order.prompt[: row.order.n_shared]
            alone = id(row) if row.length else 0
            groups.setdefault((alone, id(self._wide_enough(row.n_slots)), shared), []).append((row, stop))
        return list(groups.values())

    def _read_part(self, group: Sequence[tuple[Row, int]]) -> list[Row]:
        """Reads rows that begin with the same tokens, on one shelf, up to the given lengths."""
        rows = [row for row, _ in group]
        shelf = rows[0].shelf or self._wide_enough(rows[0].n_slots)
        for row in rows:
            if row.shelf is None:
                shelf.put(row)
                row.shelf = shelf
        into = [shelf.place_of(row) for row in rows]
        order = rows[0].order
        began = rows[0].length > 0
        prefix = (
            shelf.cache.row(into[0], order.prompt[: rows[0].length])
            if began
            else self._prefix(order.prompt[: order.n_shared])
        )
        sequences = [TokenSequence(row.order.prompt[:stop], stop, ()) for row, stop in group]
        which, ends, states = read_prompts(
            self.lm, sequences, range(len(rows)), prefix, shelf.cache, into, _places(rows)
        )
        if not began:
            shelf.cache.begin(torch.tensor(into), prefix)
        read = [index for index, item in enumerate(which) if group[item][1] == len(rows[item].order.prompt)]
        finished = [rows[which[index]] for index in read]
        chosen = self._choose(finished, ends if len(read) == len(which) else ends[read]) if finished else []
        for row, stop in group:
            row.length = stop
        for index, row, choice in zip(read, finished, chosen, strict=True):
            row.seen.append((states, index))
            self._note(row, *choice)
        return finished

    def _feed(self) -> list[Row]:
        """One more token of every row whose prompt is read."""
        shelves = self._in_use()
        standing = [row for shelf in shelves for row in shelf.rows]
        live = [index for index, row in enumerate(standing) if row is not None and row.is_read]
        rows = [row for row in standing if row is not None and row.is_read]
        return self._try(lambda: self._feed_rows(shelves, standing, live, rows), rows[-1:]) if rows else []

    def _feed_rows(
        self, shelves: Sequence[Shelf], standing: Sequence[Row | None], live: list[int], rows: list[Row]
    ) -> list[Row]:
        # Places that are given up, and rows that are still being read, run along: what they write is written over.
        ids = torch.tensor([row.ids[-1] if row is not None and row.ids else 0 for row in standing])
        slots = torch.tensor([0 if row is None else row.length for row in standing])
        tokens = None if len(live) == len(standing) else torch.tensor(live)
        reader = StateReader(self.lm, _places(rows), tokens)
        attention = _Steps(self.lm, shelves, slots.to(self.lm.device))
        stream = run_layers(self.lm, ids, slots, attention, reader.visit, read=tokens)
        chosen = self._choose(rows, stream[0].to(self.lm.device))
        for index, (row, choice) in enumerate(zip(rows, chosen, strict=True)):
            row.seen.append((reader.found, index))
            row.length += 1
            self._note(row, *choice)
        return rows

    def _try(self, run: Callable[[], list[Row]], blamed: Sequence[Row]) -> list[Row]:
        """Where memory runs out: fewer tokens are read at once, or the newest row fails alone."""
        try:
            return run()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()  # outside the handler: the exception held on to every tensor
        if len(blamed) > 1:
            self.read_at_once = max(1, self.read_at_once // 2)
            return []
        for row in blamed:
            self._fail(row, too_long_for_memory(row.n_slots))
        return list(blamed)

    def _choose(self, rows: Sequence[Row], ends: Float[Tensor, "row d_model"]) -> list[tuple[int, tuple[float, ...]]]:
        """The next token of each row and its statistics."""
        chosen: list[tuple[int, tuple[float, ...]]] = []
        for logits in logits_in_parts(self.lm, ends):
            part = rows[len(chosen) : len(chosen) + len(logits)]
            tokens = next_tokens(logits, part)
            statistics = row_statistics(logits, tokens, part)
            chosen += zip(tokens.tolist(), map(tuple, statistics.T.tolist()), strict=True)
        return chosen

    def _note(self, row: Row, token: int, statistics: tuple[float, ...]) -> None:
        if not np.isfinite(statistics[0]):
            return self._fail(row, not_finite(self.lm))
        row.finished = row.order.is_end(token, row.ids)
        if not row.finished and len(row.ids) == row.room and row.order.longer is not None:
            self._widen(row, row.order.longer(row.ids))
        row.over = row.finished or len(row.ids) >= row.room
        if row.over:
            self._leave(row)
        else:
            row.ids.append(token)
            row.told.append(statistics)

    def _widen(self, row: Row, room: int) -> None:
        """Moves a row that may become longer to another shelf, if memory suffices."""
        before, row.room = row.room, max(room, row.room)
        wider = self._wide_enough(row.n_slots)
        if row.shelf is None or wider is row.shelf:
            return
        try:
            self._move(row, row.shelf, wider)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            row.room = before  # it ends where it stands
            if row in wider.rows:
                wider.take_away(row, True)
        else:
            row.shelf.take_away(row)
            row.shelf = wider

    def _move(self, row: Row, shelf: Shelf, wider: Shelf) -> None:
        ids = (*row.order.prompt, *row.ids)
        held = shelf.cache.row(shelf.place_of(row), ids)
        index = wider.put(row)
        slots = torch.arange(len(ids))
        for layer, (key, value) in enumerate(zip(held.keys, held.values, strict=True)):
            wider.cache.write(layer, torch.full_like(slots, index), slots, key, value)

    def _fail(self, row: Row, why: UserError) -> None:
        row.error, row.over = why, True
        self._leave(row, spoiled=True)

    def _leave(self, row: Row, spoiled: bool = False) -> None:
        if row.shelf is not None:
            row.shelf.take_away(row, spoiled or not row.ids)  # the values of a half-read prompt are unchecked
            row.shelf = None


class _Steps:
    """The attention of one step over several shelves, row after row."""

    def __init__(self, lm: LanguageModel, shelves: Sequence[Shelf], slots: Int[Tensor, " row"]) -> None:
        self.counts = [len(shelf.rows) for shelf in shelves]
        longest = [max(row.length for row in shelf.rows if row is not None) + 1 for shelf in shelves]
        parts = zip(shelves, slots.split(self.counts), longest, strict=True)
        self.steps = [Step(lm, shelf.cache, own, most) for shelf, own, most in parts]

    def enter(self, layer: int) -> None:
        for step in self.steps:
            step.enter(layer)

    def attend(
        self, query: Queries, key: Keys, value: Keys, scaling: float, softcap: float | None
    ) -> Float[Tensor, "token head d_value"]:
        parts = zip(self.steps, *(part.split(self.counts) for part in (query, key, value)), strict=True)
        return torch.cat([step.attend(*own, scaling, softcap) for step, *own in parts])


def _places(rows: Sequence[Row]) -> tuple[SitePlace, ...]:
    return tuple(dict.fromkeys(site for row in rows for site in row.order.places))
