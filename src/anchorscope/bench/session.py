"""A whole benchmark, from top to bottom: load, measure the machine, time all implementations, judge the targets."""

from typing import Any

from anchorscope.bench import generation, probe_fits
from anchorscope.bench.meter import held_mb, machine, matmul_peak
from anchorscope.bench.options import Options
from anchorscope.bench.setting import Say, Setting, load_model
from anchorscope.bench.states import StateImplementations
from anchorscope.bench.table import Row, with_speedups
from anchorscope.bench.targets import Circumstances, judge
from anchorscope.bench.workload import Workload


def run_benchmark(options: Options, say: Say) -> dict[str, Any]:
    """The record of one benchmark, as `--json` shows it."""
    say(f"load {options.model}")
    lm = load_model(options)
    peak = matmul_peak(lm.device, lm.dtype)
    say(f"matrix-multiply peak {peak / 1e9:,.0f} GFLOP/s")
    setting = Setting(options, lm, peak, say, held_mb(lm.device))
    workload = setting.workload(options.items)
    say(f"{workload.about}, {workload.shared} tokens shared")
    rows = with_speedups(_measure(setting, workload))
    here = _circumstances(setting, workload)
    return {
        "rows": [row.record() for row in rows],
        "targets": judge(rows, here),
        "model": lm.name,
        "device": str(lm.device),
        "dtype": here.dtype,
        "workload": {
            "about": workload.about,
            "items": len(workload.items),
            "shared_tokens": workload.shared,
            "own_tokens_mean": here.own,
            "probe_items": options.probe_items,
        },
        "repeats": options.repeats,
        "matmul_peak_gflops": peak / 1e9,
        "block_parameters": setting.block_parameters,
        "machine": machine(lm.device),
    }


def _measure(setting: Setting, workload: Workload) -> list[Row]:
    rows: list[Row] = []
    knockouts = StateImplementations(setting, workload)
    for work in setting.options.work:
        if not setting.options.implementations_of(work):
            continue
        if work in ("knockout", "single-layer"):
            rows += knockouts.rows(work)
            continue
        knockouts.close()  # copies of the model would count as memory of what comes next
        rows += probe_fits.rows(setting) if work == "probes" else generation.rows(setting, workload)
    knockouts.close()
    return rows


def _circumstances(setting: Setting, workload: Workload) -> Circumstances:
    lm = setting.lm
    return Circumstances(
        model=setting.options.model,
        device=lm.device.type,
        dtype=str(lm.dtype).removeprefix("torch."),
        items=len(workload.items),
        shared=workload.shared,
        own=workload.tokens / len(workload.items) - workload.shared,
        probe_items=setting.options.probe_items,
    )
