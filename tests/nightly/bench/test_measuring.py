"""Seconds, memory, rates, speedups."""

import time

import numpy as np
import torch

from anchorscope.bench.measuring import Measured, Row, Setting, matmul_peak, measure, with_speedups

CPU = torch.device("cpu")


def test_seconds_and_memory_of_a_run():
    def work() -> np.ndarray:
        block = np.ones(64 * 2**17)  # 64 MB
        time.sleep(0.05)
        return block[:1].copy()

    taken = measure(work, CPU)
    assert 0.05 <= taken.seconds < 5
    assert 50 < taken.added_mb < 300
    assert measure(lambda: time.sleep(0.03), CPU).added_mb < 50  # what was freed is not counted again


def test_the_peak_is_a_rate():
    assert 1e8 < matmul_peak(CPU, torch.float32) < 1e14


def test_a_row_holds_the_median_and_the_spread(setting: Setting):
    taken = [Measured(seconds, added) for seconds, added in ((2.0, 5.0), (1.0, 7.0), (4.0, 6.0))]
    row = Row("knockout", "plain").timed(10, taken, setting, tokens=500)
    assert (row.seconds, row.seconds_min, row.seconds_max, row.items_per_s) == (2.0, 1.0, 4.0, 5.0)
    assert (row.tokens_per_s, row.share_of_peak) == (250, 250 / setting.peak_tokens_per_s)
    assert (row.peak_memory_mb, row.added_memory_mb) == (107, 7)


def test_speedup_is_our_rate_over_theirs():
    rates = {"anchorscope": 12.0, "plain": 3.0, "nnsight": None}
    rows = [Row("knockout", name, items_per_s=rate) for name, rate in rates.items()]
    assert [row.speedup for row in with_speedups(rows)] == [1.0, 4.0, None]
    assert [row.speedup for row in with_speedups(rows[1:2])] == [None]
