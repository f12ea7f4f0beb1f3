"""Rows that join and leave a batch: each becomes what it becomes alone, whatever runs beside it."""

import gc
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.engine import continuous
from anchorscope.engine import decode as decode_module
from anchorscope.engine.continuous import Continuous, Drawing, Order, Row
from anchorscope.engine.decode import Decoded, Growing, Sampling, decode
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.stats.streams import unnamed
from engine_cases import SHARED, assert_same, captured
from tiny_models import build_tiny, byte_tokenizer, tiny_model

ROOM = 9
OTHER = (256, 81, 12, 9)
"""Tokens that two of the prompts begin with, and that the others do not share to their end."""


def is_end(token: int, so_far: Sequence[int]) -> bool:
    return token % 6 == 2


def make_prompts() -> list[tuple[tuple[int, ...], int]]:
    """Prompts of many lengths, one of them on a wider shelf than the others, and how many tokens each one shares."""
    generator = torch.Generator().manual_seed(5)
    kinds = [(SHARED, 1), (SHARED, 17), (OTHER, 4), ((), 9), (SHARED, 70), (OTHER, 30), (SHARED, 2)]
    return [
        ((*shared, *torch.randint(0, 256, (own,), generator=generator).tolist()), len(shared)) for shared, own in kinds
    ]


PROMPTS = make_prompts()
N = len(PROMPTS)
SEEDS = unnamed(3, "continuous", N)
PLACES = (("attention", 0), ("mlp", 2), ("residual", 3))
lm_named = cache(build_tiny)


def alone(lm: LanguageModel, sampled: Sequence[int] = ()) -> list[Decoded]:
    """Every prompt decoded by itself, some of them sampled."""
    found = []
    for number, (prompt, _) in enumerate(PROMPTS):
        sampling = Sampling(SEEDS[[number]], 1.3, 0.9) if number in sampled else None
        found += decode(lm, [prompt], NO_PREFIX, [[0]], ROOM, is_end, sampling=sampling)
    return found


def order(number: int, sampled: Sequence[int] = (), **others: object) -> Order:
    prompt, shared = PROMPTS[number]
    drawing = Drawing(int(SEEDS[number]), 1.3, 0.9) if number in sampled else None
    return Order(prompt, ROOM, is_end, shared, drawing, **others)  # type: ignore[arg-type]


def same(row: Row, wanted: Decoded) -> None:
    found = row.decoded()
    assert (found.ids, found.finished) == (wanted.ids, wanted.finished)
    assert found.log_probs == pytest.approx(wanted.log_probs, abs=1e-5)


def all_out(batch: Continuous) -> None:
    while len(batch):
        assert batch.step() or batch.waiting, "rows are under way and nothing happens"


def test_rows_become_what_they_become_alone(tiny: LanguageModel) -> None:
    wanted = alone(tiny)
    for share in (0.0, 2.0):  # places that were given up are closed at once, or never
        batch, rows = Continuous(tiny, read_at_once=20), []
        batch.share = share
        for number in range(N):
            rows.append(batch.join(order(number)))
            batch.step()
        all_out(batch)
        for row, one in zip(rows, wanted, strict=True):
            same(row, one)
    assert len({one.ids for one in wanted}) > 2


@cache
def llama_alone(sampled: tuple[int, ...]) -> list[Decoded]:
    return alone(lm_named("llama"), sampled)


@settings(max_examples=10)
@given(
    plan=st.lists(st.tuples(st.sampled_from(["join", "drop", "step"]), st.integers(0, N - 1)), max_size=30),
    read_at_once=st.sampled_from([3, 16, 200]),
    sampled=st.sampled_from([(), (0, 2, 4), tuple(range(N))]),
    share=st.sampled_from([0.0, 0.25, 2.0]),
)
def test_whoever_joins_or_leaves_the_others_stay_as_they_are(
    plan: list[tuple[str, int]], read_at_once: int, sampled: tuple[int, ...], share: float
) -> None:
    wanted, batch = llama_alone(sampled), Continuous(lm_named("llama"), read_at_once)
    batch.share = share
    rows: list[tuple[int, Row]] = []
    dropped: set[int] = set()
    for what, number in plan:
        if what == "join":
            rows.append((number, batch.join(order(number, sampled, statistics=number % 2 == 0))))
        elif what == "drop" and rows:
            batch.drop(rows[number % len(rows)][1])
            dropped.add(number % len(rows))
        else:
            batch.step()
    all_out(batch)
    for place, (number, row) in enumerate(rows):
        if place not in dropped:
            same(row, wanted[number])
            assert all(np.isfinite(one).all() == (number % 2 == 0) for one in row.told)
        else:
            assert tuple(row.ids) == wanted[number].ids[: len(row.ids)]


def test_states_and_statistics_are_those_of_a_pass_over_the_whole(tiny: LanguageModel) -> None:
    batch = Continuous(tiny, read_at_once=20)
    rows = [batch.join(order(number, (1, 4), places=PLACES, statistics=True)) for number in range(N)]
    all_out(batch)
    for row in rows:
        start = len(row.order.prompt)
        whole = TokenSequence((*row.order.prompt, *row.ids), start, tuple(range(start - 1, start + len(row.ids))))
        found = read_again(tiny, whole)
        for site, layer in PLACES:
            states = [row.state((site, layer), position) for position in whole.read_at]
            assert_same(torch.stack(states), found[0][:, SITES.index(site), layer])
        assert_same(torch.tensor(row.told).reshape(-1, 3).T, found[1])


def read_again(lm: LanguageModel, whole: TokenSequence) -> tuple[torch.Tensor, torch.Tensor]:
    """States and statistics of one item."""
    told: list[torch.Tensor] = []
    states, _ = captured(lm, [whole], answers_of=[0], receive_answers=lambda _, __, scores, ___: told.append(scores))
    return states[0, 0], told[0]


def test_what_prompts_share_is_computed_once(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    compute = continuous.compute_prefix
    monkeypatch.setattr(continuous, "compute_prefix", lambda lm, ids: computed.append(ids) or compute(lm, ids))
    batch = Continuous(tiny_llama)
    for _ in range(2):
        for number in range(N):
            batch.join(order(number))
        all_out(batch)
    assert sorted(computed) == [(), OTHER, SHARED]


def test_a_long_prompt_keeps_nobody_waiting(tiny_llama: LanguageModel) -> None:
    batch = Continuous(tiny_llama, read_at_once=16)
    short = batch.join(Order(PROMPTS[0][0], 30, lambda token, so_far: False))
    batch.step()
    long = batch.join(Order(PROMPTS[4][0], 3, lambda token, so_far: False))
    late = batch.join(Order(PROMPTS[6][0], 3, lambda token, so_far: False))
    before, steps = len(short.ids), 0
    while not long.ids:
        assert len(short.ids) == before + steps  # a token in every step
        batch.step()
        steps += 1
    assert steps <= -(-len(PROMPTS[4][0]) // 16) + 1
    assert late.over  # read between two parts of the long one, and ended before it


def test_a_row_may_turn_out_longer_and_moves(tiny_llama: LanguageModel) -> None:
    never = lambda token, so_far: False  # noqa: E731
    batch = Continuous(tiny_llama)
    (wanted,) = decode(tiny_llama, [PROMPTS[1][0]], NO_PREFIX, [[0]], 80, never)
    beside = batch.join(order(0))
    row = batch.join(Order(PROMPTS[1][0], 4, never, longer=lambda ids: 80 if len(ids) == 4 else 0))
    all_out(batch)
    same(row, wanted)
    same(beside, llama_alone(())[0])


def test_a_row_that_is_no_number_fails_alone_and_leaves_nothing_behind() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[255] = float("nan")
    lm = wrap(model, byte_tokenizer(), name="poisoned")
    wanted = alone(lm)
    batch = Continuous(lm)
    beside = batch.join(order(1))
    poisoned = [batch.join(Order((1, 2, 3, 255, *range(40, 60)), ROOM, is_end)) for _ in range(3)]
    batch.step()
    assert all("NaN or infinity" in str(row.error) for row in poisoned)
    after = [batch.join(order(number)) for number in (0, 2, 6)]  # in the places of the poisoned ones
    all_out(batch)
    same(beside, wanted[1])
    for row, number in zip(after, (0, 2, 6), strict=True):
        same(row, wanted[number])


def test_where_memory_runs_out_rows_fail_alone(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, run = Continuous(tiny_llama), continuous.read_prompts

    def small(lm: LanguageModel, sequences: Sequence[TokenSequence], *rest: object) -> object:
        if sum(len(one.ids) for one in sequences) > 40:
            raise RuntimeError("CUDA out of memory")
        return run(lm, sequences, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(continuous, "read_prompts", small)
    rows = [batch.join(order(number)) for number in range(N)]
    all_out(batch)
    for number, row in enumerate(rows):
        if len(PROMPTS[number][0]) > 40:
            assert "Memory does not suffice" in str(row.error)
        else:
            same(row, llama_alone(())[number])


def test_memory_does_not_grow(tiny_llama: LanguageModel) -> None:
    def held() -> int:
        gc.collect()
        return sum(one.numel() for one in gc.get_objects() if type(one) is torch.Tensor)

    batch, sizes = Continuous(tiny_llama), []
    for number in range(100):
        row = batch.join(Order(PROMPTS[number % N][0], 3, is_end, PROMPTS[number % N][1], places=PLACES))
        if number % 9 == 0:
            batch.step()
            batch.drop(row)
        if number % 10 == 9:
            all_out(batch)
        if number in (39, 99):
            del row
            sizes.append(held())
    assert sizes[1] == sizes[0]
    assert len(batch) == 0


def test_memory_that_runs_out_while_rows_are_added_leaves_the_others() -> None:
    cache = Growing(NO_PREFIX, 2, 8)
    cache.write(0, torch.arange(2), torch.zeros(2, dtype=torch.long), torch.ones(2, 1, 4), torch.ones(2, 1, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_module, "_longer", lambda store, rows: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            cache.grow(4)
    assert cache.rows == 2  # so that the next one asks for room again
    cache.grow(4)
    assert cache.rows == len(cache.stores[0][0]) == 4


def test_prompts_are_read_as_fast_as_before_once_memory_suffices_again(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Continuous(tiny_llama, read_at_once=64)
    read, failing = Continuous._read_part, [True, True]

    def sometimes(self: Continuous, group: Any) -> Any:
        if len(group) > 1 and failing and failing.pop():
            raise MemoryError
        return read(self, group)

    monkeypatch.setattr(Continuous, "_read_part", sometimes)
    rows = [batch.join(order(number)) for number in range(N)]
    all_out(batch)
    assert all(row.finished or row.over for row in rows)
    assert not any(row.error for row in rows)
    assert batch.read_at_once == 64


@pytest.mark.parametrize("when", ["a place is taken", "keys are copied"])
def test_a_row_that_memory_does_not_let_grow_ends_where_it_stands(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    never = lambda token, so_far: False  # noqa: E731
    (wanted,) = decode(tiny_llama, [PROMPTS[1][0]], NO_PREFIX, [[0]], 4, never)
    batch = Continuous(tiny_llama)
    beside = batch.join(order(4))  # on the wider shelf
    row = batch.join(Order(PROMPTS[1][0], 4, never, longer=lambda ids: 80 if len(ids) == 4 else 0))
    batch.step()
    wider = batch._wide_enough(len(PROMPTS[1][0]) + 81)
    assert wider is beside.shelf is not row.shelf

    def full(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    write, cache = Growing.write, wider.cache
    if when == "a place is taken":
        monkeypatch.setattr(wider, "put", full)
    else:  # prompts are read and tokens fed through the same door
        monkeypatch.setattr(
            cache,
            "write",
            lambda layer, rows, slots, *keys: full() if len(slots) > 1 else write(cache, layer, rows, slots, *keys),
        )
    for _ in range(2 * ROOM):
        batch.step()
    assert len(batch) == 0
    assert row.error is None
    same(row, wanted)
    same(beside, llama_alone(())[4])
    assert row not in wider.rows
