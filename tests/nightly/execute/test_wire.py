"""Packing: whatever may travel arrives as it was, equal values give equal bytes, and damaged bytes do nothing."""

import contextlib
import gc
import json
import math
import string
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save

from anchorscope.engine.sequences import CLEAN, Cut, Patch, TokenSequence, Variant
from anchorscope.execute import unpacking, wire
from anchorscope.execute.wire import known, pack, unpack
from anchorscope.plan.passes import OutOfFoldProbes, StatesPass
from anchorscope.probes.crossfit import ProbeSet

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn)


def same(one, other):
    """Equal in value, type, dtype and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, pl.DataFrame):
        return one.equals(other)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return one == other


def raw(tensor):
    if not tensor.numel():
        return b""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def there_and_back(value):
    packed = pack(value)
    return unpack(packed.body, packed.blobs)


plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.tuples(st.integers(-9, 9), st.integers(1, 99), st.integers(1, 3)).map(lambda it: range(*it))
)
numpy_arrays = arrays.arrays(
    st.one_of(
        arrays.boolean_dtypes(),
        arrays.integer_dtypes(endianness="="),
        arrays.unsigned_integer_dtypes(endianness="="),
        arrays.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
        arrays.complex_number_dtypes(endianness="="),
    ),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
tensors = st.tuples(
    arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    st.sampled_from(FLOATS),
).map(lambda it: torch.from_numpy(it[0]).to(it[1]))
numbers = st.one_of(
    st.lists(st.integers(0, 200_000), min_size=6, max_size=20),
    st.lists(st.integers(), min_size=6, max_size=20),
    st.lists(st.floats(), min_size=6, max_size=20),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=6, max_size=20),
)
records = st.builds(TokenSequence, numbers.map(tuple), st.integers(), st.tuples(st.integers())) | st.builds(
    Variant, st.dictionaries(st.integers(0, 9), st.builds(Cut, st.tuples(st.integers(0, 5))))
)
leaves = plain | numpy_arrays | tensors | numbers | numbers.map(tuple) | records
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=10)
        | st.lists(inner, max_size=10).map(tuple)
        | st.dictionaries(st.integers() | st.text(string.printable), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(values)
def test_what_arrives_is_what_was_sent(value):
    packed = pack(value)
    assert same(unpack(packed.body, packed.blobs), value)
    assert pack(there_and_back(value)).body == packed.body, "equal values, equal bytes"


@pytest.mark.parametrize("name", sorted(unpacking.DTYPES))
def test_tensors_of_every_kind_and_layout_keep_their_bits(name):
    dtype = unpacking.DTYPES[name]
    bits = torch.randint(0, 2 if name == "bool" else 256, (4, 3 * dtype.itemsize), dtype=torch.uint8)
    whole = bits.view(dtype)  # any pattern of bits, NaNs with a load too
    for one in (whole, whole.T, whole[::2], whole[1], whole[0, 0], whole[:0], whole[:1].expand(3, 3)):
        assert same(there_and_back([one])[0], one.contiguous())
    assert there_and_back(whole).is_contiguous()
    there_and_back(whole)[0, 0] = whole[0, 1]  # what arrives may be written to


def test_a_shard_as_the_planner_makes_it():
    sequences = tuple(TokenSequence(tuple(range(20 + n)), 15, (19 + n,)) for n in range(3))
    variants = (
        CLEAN,
        Variant({0: Cut((3, 4), "direct", heads=(1,)), 2: Cut((2,), alpha=0.5)}, range(2, 4)),
        Variant(layers=range(1, 2), patches={1: Patch((4,), 0, (5,))}),
    )
    one, other = probes(1), probes(2)
    shard = StatesPass(
        "clean",
        sequences,
        (0, 1),
        variants,
        ((0, 2), (1,)),
        64,
        probes=OutOfFoldProbes(((one, other),), np.array([0])),
        keep=(((0, 1),),),
        log_probs=True,
    )
    packed = pack(shard)
    assert len(packed.blobs) == 2
    assert same(unpack(packed.body, packed.blobs), shard)


def probes(seed):
    values = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 2, 4, 16, generator=values)
    return ProbeSet(weight, weight[..., 0], weight[..., 1].numpy(), weight[..., 2].numpy(), ("a",))


entries = st.integers(-(2**31), 2**31 - 1) | st.sampled_from(
    [True, 2**31, -(2**31) - 1, 2**70, 0.5, "i", None, (1, 2), (), np.int64(3), np.arange(3), [4]]
)  # what only looks like one more number


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=8, max_size=12), st.data())
def test_one_odd_entry_among_rows_of_numbers_stays_what_it_is(rows, data):
    row = data.draw(st.integers(0, len(rows) - 1))
    rows[row].insert(data.draw(st.integers(0, len(rows[row]))), data.draw(entries))
    value = [tuple(row) for row in rows]
    assert same(there_and_back(value), value)
    assert same(there_and_back(tuple(value)), tuple(value))


odd = st.sampled_from(
    [0, True, -0.0, math.nan, None, "a", (), (1,), 2**63, np.int64(1), np.arange(3), torch.arange(3.0)]
)


@settings(max_examples=300, deadline=None)
@given(st.integers(8, 10), odd, odd, odd, st.data())
def test_a_part_that_is_alike_in_all_records_arrives_in_all(n, first, second, third, data):
    records = [TokenSequence(first, second, third) for _ in range(n)]
    assert same(there_and_back(records), records)
    records[data.draw(st.integers(0, n - 1))] = TokenSequence(first, second, data.draw(odd))
    assert same(there_and_back(records), records)
    assert pack(there_and_back(records)).body == pack(records).body, "equal values, equal bytes"


def test_what_is_shared_is_packed_once_and_arrives_as_one_object():
    one = probes(3)
    first, second = pack([one, 1]), pack((2, one))
    assert list(first.blobs) == list(second.blobs)
    assert next(iter(first.blobs.values())) is next(iter(second.blobs.values())), "packed only once"
    assert unpack(first.body, first.blobs)[0] is unpack(second.body, second.blobs)[1]
    assert unpack(first.body, {})[0] is unpack(second.body, {})[1], "those that came last are held"
    assert len(first.body) < 400
    number = id(one)
    assert number in wire._packed
    del one
    gc.collect()
    assert number not in wire._packed, "held only while the value lives"


def test_a_blob_is_checked_against_its_name():
    packed = pack([probes(4)])
    ((digest, blob),) = packed.blobs.items()
    for blobs in ({}, {digest: blob[:-1]}, {digest: pack([probes(5)]).body}):
        with pytest.raises(ValueError, match="no packed value"):
            unpack(packed.body, blobs)


@known
@dataclass(frozen=True)
class Parcel:
    inside: object


@dataclass(frozen=True)
class Stranger:
    inside: object


def test_keys_may_be_tuples_and_tables_arrive_as_they_were():
    assert there_and_back({("mlp", 1): 2, "x": 3, 4: 5}) == {("mlp", 1): 2, "x": 3, 4: 5}
    table = pl.DataFrame(
        {"text": ["a", None], "number": [1.5, math.nan], "count": [1, None], "is": [True, None], "all": [[1], [2, 3]]}
    )
    for sent in (table, pl.concat([table, table]), table[:0], pl.DataFrame()):
        came = there_and_back({"table": sent})["table"]
        assert came.schema == sent.schema
        assert came.equals(sent, null_equal=True)


def test_types_travel_only_when_they_are_named():
    assert there_and_back(Parcel((1, Parcel([2])))) == Parcel((1, Parcel([2])))
    with pytest.raises(TypeError, match=r"Stranger does not travel; name it to `wire\.known`"):
        pack(Stranger(1))
    with pytest.raises(ValueError, match="each under a name of its own"):
        known(dataclass(frozen=True)(type("Parcel", (), {"__annotations__": {"x": int}})))
    with pytest.raises(ValueError, match="only dataclasses travel"):
        known(int)
    with pytest.raises(ValueError, match="does not take all of its parts in their order"):
        known(dataclass(frozen=True, kw_only=True)(type("Named", (), {"__annotations__": {"x": int}})))


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"x",
        {(1, 2.5): 3},
        {1.5: 2},
        {True: 1},
        np.array(["a"]),
        np.array([None]),
        np.array([1], ">i4"),
        object(),
        torch.eye(2).to_sparse(),
        print,
        int,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_arrive_as_it_was_is_refused(value):
    with pytest.raises(TypeError, match="does not travel"):
        pack([value])


def forged(form, **tensors):
    return save({"value": np.frombuffer(json.dumps(form).encode(), np.uint8), **tensors})


EIGHT = np.zeros(8, np.uint8)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        save({}),
        forged(["o", "Stranger", 1]),
        forged(["o", "Parcel", 1, 2]),
        forged(["?"]),
        forged([["t"]]),
        forged(["n", 0, "float32", [3]], **{"0": EIGHT}),
        forged(["n", 0, "O8,f4", [1]], **{"0": EIGHT}),
        forged(["T", 0, "float32", [-1, 2]], **{"0": EIGHT}),
        forged(["ti", 0, 9], ints=EIGHT),
        forged(["b", "0" * 64]),
        forged(["r", 1, 2, 0]),
        forged(["o", "Cut", ["t"], "sideways", "mask", None, -1.0]),
        forged(["d", ["r", 0, 10**12, 1], ["r", 0, 10**12, 1]]),
    ],
    ids=range(15),
)
def test_bytes_that_nobody_packed_are_a_value_error(body):
    with pytest.raises(ValueError, match="no packed value"):
        unpack(body, {})


def test_nesting_without_end_is_a_value_error():
    text = b'["t",' * 100_000 + b"1" + b"]" * 100_000
    with pytest.raises(ValueError, match="no packed value"):
        unpack(save({"value": np.frombuffer(text, np.uint8)}), {})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_are_a_value_error_or_another_value_and_never_anything_else(data):
    body = pack(Parcel([torch.arange(5.0), tuple(range(20)), {"a": np.arange(3)}, "text", None])).body
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(ValueError, match="no packed value"):
        unpack(cut, {})
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(8, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        unpack(bytes(changed), {})
