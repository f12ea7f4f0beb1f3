"""A whole benchmark: what its rows say, ways that are missing or fail, ways that compute something else."""

import json
from argparse import Namespace
from typing import Any

import pytest
import torch

import peers
from anchorscope.models.language_model import LanguageModel
from peers import Setting, compared, generation_rows, probe_rows, run_peers
from ways import KINDS

QUICK = Namespace(
    work=("knockout",),
    ways=peers.WAYS,
    device="cpu",
    dtype="float32",
    items=6,
    probe_items=60,
    repeats=1,
    seconds=0.01,
    shared=6,
    own=13,
    new_tokens=4,
    seed=0,
)


def quick(**more: Any) -> Namespace:
    return Namespace(**vars(QUICK) | more)


@pytest.fixture
def setting(tiny_llama: LanguageModel) -> Setting:
    return Setting(QUICK, tiny_llama)


def test_rows_say_what_they_compare_and_a_missing_way_has_a_note(
    save_tiny, monkeypatch
) -> None:
    for name in ("nnsight", "transformer-lens"):
        monkeypatch.setitem(KINDS, name, (KINDS[name][0], "no_such_package"))
    work = ("knockout", "single-layer")
    report = run_peers(quick(model=str(save_tiny("llama")), work=work))
    assert not report.failed
    asked = [(one, way) for one in work for way in KINDS]
    assert [(row["work"], row["way"]) for row in report.rows] == asked
    for row in report.rows:
        if row["way"] in ("nnsight", "transformer-lens"):
            assert "per_s" not in row
            assert "pip install -r benchmarks/requirements.txt" in row["note"]
        else:
            assert row["per_s"] > 0
            assert row["same"]
            assert row["difference"] < 1e-5
            assert (row["speedup"] == 1.0) == (row["way"] == "anchorscope")
    assert json.loads(json.dumps(report.record(), allow_nan=False))["rows"]
    (line,) = [
        line for line in report.text().splitlines() if "anchorscope     " in line
    ][:1]
    assert "1.00×" in line


def test_a_library_that_fails_is_told_and_ours_is_not_hidden(
    save_tiny, monkeypatch
) -> None:
    class Broken:
        def __init__(self, lm: object) -> None:
            raise OSError("no such thing")

    options = quick(model=str(save_tiny("llama")), ways=("plain-batched",))
    monkeypatch.setitem(KINDS, "plain-batched", (Broken, None))
    with pytest.raises(OSError, match="no such thing"):
        run_peers(options)
    monkeypatch.setitem(KINDS, "plain-batched", (Broken, "json"))  # now it is another's
    (row,) = run_peers(options).rows
    assert row["note"] == "fails here with OSError: no such thing"


def test_a_way_that_computes_something_else_fails_the_check(
    save_tiny, monkeypatch
) -> None:
    class Wrong(KINDS["plain"][0]):  # type: ignore[misc]
        def run(self, items, mask):
            return 1.01 * super().run(items, mask)

    monkeypatch.setitem(KINDS, "plain-batched", (Wrong, None))
    options = quick(model=str(save_tiny("llama")), ways=("plain-batched",))
    report = run_peers(options)
    assert report.failed
    assert report.rows[0]["note"].startswith("DIFFERS by 1.0%")


def test_half_precision_explains_more() -> None:
    exact = torch.ones(4)
    assert compared(1.05 * exact.bfloat16(), exact)["same"]
    assert not compared(1.05 * exact, exact)["same"]
    assert not compared(1.5 * exact.bfloat16(), exact)["same"]


def test_probes_of_both_solvers_agree(setting: Setting, monkeypatch) -> None:
    monkeypatch.setattr(peers.os, "cpu_count", lambda: 1)  # a tiny fit, no processes
    ours, loop = probe_rows(setting)
    assert (ours["way"], loop["way"]) == ("anchorscope", "scikit-learn")
    assert ours["done"] == 4 * 5 * 8
    # The loop's own objective may be worse: in float32 its line search can give up.
    assert ours["difference"] < 1e-5


def test_generation_of_both_is_the_same(setting: Setting) -> None:
    ours, theirs = generation_rows(setting, setting.workload(6))
    assert (ours["way"], theirs["way"]) == ("anchorscope", "plain-batched")
    assert (ours["done"], theirs["done"]) == (6, 6)
    assert ours["difference"] == theirs["difference"] == 0
