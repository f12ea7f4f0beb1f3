"""A whole benchmark: the contract of its record, missing implementations, and mistakes in one line."""

import json

import pytest

from anchorscope.bench.implementations import KINDS
from anchorscope.bench.measuring import Setting
from anchorscope.bench.options import Options
from anchorscope.bench.session import generation_rows, probe_rows, render, run_benchmark

CONTRACT = {"work", "way", "items_per_s", "speedup", "max_difference", "peak_memory_mb"}


@pytest.fixture
def quick(save_tiny) -> dict[str, object]:
    return {
        "model": str(save_tiny("llama")),
        "device": "cpu",
        "items": 4,
        "repeats": 1,
        "seconds": 0.01,
        "shared": 6,
        "own": 13,
    }


def test_the_record_is_the_contract_and_a_missing_implementation_has_a_note(
    quick, monkeypatch
):
    for name in ("nnsight", "transformer-lens"):
        monkeypatch.setitem(KINDS, name, (KINDS[name][0], "no_such_package"))
    said: list[str] = []
    record = run_benchmark(
        Options(**quick, work=("knockout", "single-layer")), said.append
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == json.loads(
        json.dumps(record)
    )
    assert [(row["work"], row["way"]) for row in record["rows"]] == [
        (work, way) for work in ("knockout", "single-layer") for way in KINDS
    ]
    for row in record["rows"]:
        assert row.keys() >= CONTRACT
        if row["way"] in ("nnsight", "transformer-lens"):
            assert row["items_per_s"] is None
            assert "not installed" in row["note"]
        else:
            assert row["items_per_s"] > 0
            assert row["max_difference"] < 1e-5
            assert 0 < row["share_of_peak"] < 1
            assert (row["speedup"] == 1.0) == (row["way"] == "anchorscope")
    table = render(record)
    assert "see below" in table
    assert "pip install 'anchorscope[bench]'" in table
    assert said


def test_a_library_that_fails_is_told_and_ours_is_not_hidden(quick, monkeypatch):
    class Broken:
        def __init__(self, lm: object) -> None:
            raise OSError("no such thing")

    monkeypatch.setitem(KINDS, "plain-batched", (Broken, None))
    options = Options(**quick, work=("knockout",), ways=("plain-batched",))
    with pytest.raises(OSError, match="no such thing"):
        run_benchmark(options, lambda text: None)
    monkeypatch.setitem(KINDS, "plain-batched", (Broken, "json"))  # now it is another's
    (row,) = run_benchmark(options, lambda text: None)["rows"]
    assert row["note"] == "fails here with OSError: no such thing"


def test_probes_of_both_solvers_agree(setting: Setting, monkeypatch):
    monkeypatch.setattr(
        "anchorscope.bench.session.os.cpu_count", lambda: 1
    )  # a tiny fit, no processes
    ours, loop = probe_rows(setting)
    assert (ours.way, loop.way, ours.unit) == ("anchorscope", "scikit-learn", "fits")
    assert ours.items == 4 * 5 * 8
    assert (
        ours.max_difference < 1e-5
    )  # the loop's own objective may be worse: in float32 its line search can give up


def test_generation_of_both_is_the_same(setting: Setting):
    ours, theirs = generation_rows(setting, setting.workload(6))
    assert (ours.way, theirs.way, ours.items, theirs.items) == (
        "anchorscope",
        "plain-batched",
        6,
        6,
    )
    assert ours.max_difference == 0
    assert theirs.speedup is None  # set once all rows of a work are there
