"""Seconds, memory, rates, speedups, targets."""

import time

import numpy as np
import pytest
import torch

from anchorscope.bench.measuring import Measured, Row, matmul_peak, measure, with_speedups
from anchorscope.bench.session import TARGETS, Circumstances, judge

CPU = torch.device("cpu")


def test_seconds_and_memory_of_a_run():
    def work() -> np.ndarray:
        block = np.ones(64 * 2**17)  # 64 MB
        time.sleep(0.05)
        return block[:1].copy()

    taken = measure(work, CPU)
    assert 0.05 <= taken.seconds < 5
    assert 50 < taken.host_added_mb < 300
    assert taken.device_added_mb is None
    assert measure(lambda: time.sleep(0.03), CPU).host_added_mb < 50  # what was freed is not counted again


def test_the_peak_is_a_rate():
    assert 1e8 < matmul_peak(CPU, torch.float32) < 1e14


def test_a_row_holds_the_median_and_the_spread():
    taken = [Measured(seconds, added, None) for seconds, added in ((2.0, 5.0), (1.0, 7.0), (4.0, 6.0))]
    row = Row("knockout", "plain").timed(10, taken, (100.0, 0.0), tokens=500, peak_tokens_per_s=1000)
    assert (row.seconds, row.seconds_min, row.seconds_max, row.items_per_s) == (2.0, 1.0, 4.0, 5.0)
    assert (row.tokens_per_s, row.share_of_peak) == (250, 0.25)
    assert (row.peak_memory_mb, row.host_peak_mb, row.device_peak_mb, row.added_memory_mb) == (107, 107, None, 7)
    on_gpu = Row("knockout", "plain").timed(10, [Measured(1.0, 1.0, 30.0)], (100.0, 50.0))
    assert (on_gpu.peak_memory_mb, on_gpu.host_peak_mb, on_gpu.device_peak_mb) == (80, 101, 80)


def rows(**rates: float | None) -> list[Row]:
    names = {name: name.replace("_", "-") for name in rates}
    return with_speedups([Row("knockout", names[name], items_per_s=rate) for name, rate in rates.items()])


def test_speedup_is_our_rate_over_theirs():
    found = rows(anchorscope=12.0, plain=3.0, nnsight=None)
    assert [row.speedup for row in found] == [1.0, 4.0, None]
    assert [row.speedup for row in rows(plain=3.0)] == [None]


def here(**changes: object) -> Circumstances:
    usual = {
        "model": "smollm2-135m",
        "device": "cpu",
        "dtype": "float32",
        "items": 64,
        "shared": 40,
        "own": 25.0,
        "probe_items": 400,
    }
    return Circumstances(**{**usual, **changes})  # type: ignore[arg-type]


def test_targets_are_met_or_not_or_cannot_be_told():
    found = rows(anchorscope=12.0, plain=3.0, plain_batched=4.0, nnsight=6.0, transformer_lens=4.0)
    judged = {one["target"].partition(": ")[2]: (one["measured"], one["met"]) for one in judge(found, here())}
    assert judged == {
        "at least 5× plain": (4.0, False),
        "at least 2.4× plain-batched": (3.0, True),
        "at least 2.4× the faster of transformer-lens and nnsight": (2.0, False),
    }
    without = judge(rows(anchorscope=12.0, plain=3.0, nnsight=6.0), here())
    assert [one["met"] for one in without] == [False, None, None]


@pytest.mark.parametrize(
    "changes", [{"model": "shape:smollm2-135m"}, {"device": "cuda"}, {"dtype": "bfloat16"}, {"own": 14.0}]
)
def test_a_target_is_judged_only_for_its_own_work(changes):
    assert judge(rows(anchorscope=12.0, plain=3.0), here(**changes)) == []


def test_shares_and_seconds_are_judged_too():
    gpu = here(model="shape:qwen3-32b", device="cuda", dtype="bfloat16", own=64.0, probe_items=3000)
    share = Row("knockout", "anchorscope", streaming_share_of_peak=0.7)
    fits = Row("probes", "anchorscope", seconds=12.0)
    assert [(one["measured"], one["met"]) for one in judge([share, fits], gpu)] == [(0.7, False), (12.0, True)]
    assert all(target.text for target in TARGETS)
