"""A whole benchmark: load, measure the machine, time all implementations, judge the targets, show the table.

A target is judged only where the work is the target's own: its model, device, precision and lengths.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorscope.bench import passes, probe_fits
from anchorscope.bench.measuring import Row, Say, Setting, held_mb, load_model, machine, matmul_peak, with_speedups
from anchorscope.bench.options import Options
from anchorscope.bench.workload import Workload


@dataclass(frozen=True)
class Circumstances:
    """What was measured, as far as targets ask."""

    model: str
    device: str
    """`cpu` or `cuda`."""
    dtype: str
    items: int
    shared: float
    """Shared tokens of an item."""
    own: float
    """Own tokens of an item, on average."""
    probe_items: int


_ANY = (0.0, 1e9)


@dataclass(frozen=True)
class Target:
    """One promise."""

    device: str
    model: str
    work: str
    measure: str
    """`speedup` over the fastest of `against`, `streaming_share_of_peak`, or `seconds`."""
    bound: float
    """At least this; for seconds, at most this."""
    against: tuple[str, ...] = ()
    own: tuple[float, float] = _ANY
    """The own tokens for which it was stated, beside about 40 shared ones."""
    probe_items: int = 0
    items: int = 0
    """How many items it was stated for, at least."""

    @property
    def text(self) -> str:
        """In words."""
        if self.measure == "seconds":
            return f"{self.work} at {self.model}: under {self.bound:g} s"
        if self.measure == "streaming_share_of_peak":
            return f"{self.work} at {self.model}, probes streaming: at least {self.bound:.0%} of the matmul peak"
        which = " and ".join(self.against)
        faster = f"the faster of {which}" if len(self.against) > 1 else which
        return f"{self.work} at {self.model}: at least {self.bound:g}× {faster}"


_PEERS = ("transformer-lens", "nnsight")
_ABOUT_25 = (20.0, 30.0)
_24 = (24.0, 24.0)
_64 = (64.0, 64.0)
_SMALL = "smollm2-135m"

TARGETS: tuple[Target, ...] = (
    Target("cpu", _SMALL, "knockout", "speedup", 5.0, ("plain",), _ABOUT_25),
    Target("cpu", _SMALL, "knockout", "speedup", 2.4, ("plain-batched",), _ABOUT_25),
    Target("cpu", _SMALL, "knockout", "speedup", 2.4, _PEERS, _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 10.0, ("plain",), _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 2.4, ("plain-batched",), _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 5.0, _PEERS, _ABOUT_25),
    Target("cpu", _SMALL, "probes", "speedup", 20.0, ("scikit-learn",)),
    Target("cuda", "shape:llama-3.2-1b", "knockout", "speedup", 100.0, ("plain",), _24),
    Target("cuda", "shape:llama-3.2-3b", "knockout", "speedup", 80.0, ("plain",), _24),
    Target("cuda", "shape:qwen3-8b", "knockout", "speedup", 70.0, ("plain",), _24),
    Target("cuda", "shape:qwen3-32b", "knockout", "speedup", 35.0, ("plain",), _24),
    Target("cuda", "shape:llama-3.2-1b", "knockout", "streaming_share_of_peak", 0.65, (), _64),
    Target("cuda", "shape:qwen3-8b", "knockout", "streaming_share_of_peak", 0.72, (), _64),
    Target("cuda", "shape:qwen3-32b", "knockout", "streaming_share_of_peak", 0.72, (), _64),
    Target("cuda", "shape:qwen3-32b", "probes", "seconds", 20.0, (), probe_items=3000),
    Target("cuda", _SMALL, "generation", "speedup", 3.0, ("plain-batched",), items=10_000),
)
"""All promises that a benchmark of one machine can judge."""


def judge(rows: Sequence[Row], given: Circumstances) -> list[dict[str, Any]]:
    """Every target that these circumstances are those of, met or not, or why it cannot be told."""
    works = {row.work for row in rows}
    return [_judged(target, rows) for target in TARGETS if _applies(target, given) and target.work in works]


def _applies(target: Target, given: Circumstances) -> bool:
    precise = given.dtype == ("float32" if target.device == "cpu" else "bfloat16")
    enough = given.probe_items >= target.probe_items
    long = target.own[0] <= given.own <= target.own[1] and (target.own == _ANY or 35 <= given.shared <= 50)
    many = given.items >= target.items
    return (target.device, target.model) == (given.device, given.model) and precise and enough and long and many


def _judged(target: Target, rows: Sequence[Row]) -> dict[str, Any]:
    measured = _measured(target, {row.way: row for row in rows if row.work == target.work})
    met = None
    if measured is not None:
        met = measured <= target.bound if target.measure == "seconds" else measured >= target.bound
    return {"target": target.text, "bound": target.bound, "measured": measured, "met": met}


def _measured(target: Target, by_implementation: dict[str, Row]) -> float | None:
    own = by_implementation.get("anchorscope")
    if target.measure != "speedup":
        return None if own is None else getattr(own, target.measure)
    rows = [by_implementation[name] for name in target.against if name in by_implementation]
    speedups = [row.speedup for row in rows if row.speedup is not None]
    # Of several, the faster counts: all of them have to be there.
    return min(speedups) if len(speedups) == len(target.against) else None


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
    given = _circumstances(setting, workload)
    return {
        "rows": [asdict(row) for row in rows],
        "targets": judge(rows, given),
        "model": lm.name,
        "device": str(lm.device),
        "dtype": given.dtype,
        "workload": {
            "about": workload.about,
            "items": len(workload.items),
            "shared_tokens": workload.shared,
            "own_tokens_mean": given.own,
            "probe_items": options.probe_items,
        },
        "repeats": options.repeats,
        "matmul_peak_gflops": peak / 1e9,
        "block_parameters": setting.block_parameters,
        "machine": machine(lm.device),
    }


def _measure(setting: Setting, workload: Workload) -> list[Row]:
    rows: list[Row] = []
    states = passes.StateImplementations(setting, workload)
    for work in setting.options.work:
        if not setting.options.implementations_of(work):
            continue
        if work in ("knockout", "single-layer"):
            rows += states.rows(work)
            continue
        states.implementations.clear()  # copies of the model would count as memory of what comes next
        rows += probe_fits.rows(setting) if work == "probes" else passes.generation_rows(setting, workload)
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


_HEAD = ("work", "way", "done", "per s", "spread", "tokens/s", "speedup", "difference", "memory", "of peak")


def render(record: dict[str, Any]) -> str:
    """All of it."""
    parts = [_about(record), _grid([_HEAD, *(_cells(row) for row in record["rows"])])]
    notes = [f"{row['work']}, {row['way']}: {row['note']}" for row in record["rows"] if row["note"]]
    chosen = [f"{row['way']} ({row['work']}): {row['setting']}" for row in record["rows"] if row["setting"]]
    meanings = dict.fromkeys(
        f"difference in {row['work']}: {row['difference_is']}" for row in record["rows"] if row["difference_is"]
    )
    parts += ["\n".join(lines) for lines in (notes, chosen, list(meanings)) if lines]
    if record["targets"]:
        parts.append("\n".join(_target_line(judged) for judged in record["targets"]))
    return "\n\n".join(parts)


def _about(record: dict[str, Any]) -> str:
    machine, work = record["machine"], record["workload"]
    where = machine["gpu"] or f"{machine['threads']} threads of {machine['cores']} cores"
    return (
        f"{record['model']} in {record['dtype']} on {where}; {work['about']}: {work['shared_tokens']} tokens shared, "
        f"{work['own_tokens_mean']:.1f} own; medians of {record['repeats']}; matrix-multiply peak "
        f"{record['matmul_peak_gflops']:,.0f} GFLOP/s"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["seconds"] is None:
        return (row["work"], row["way"], "see below", *[""] * (len(_HEAD) - 3))
    wide = (row["seconds_max"] - row["seconds_min"]) / row["seconds"]
    return (
        row["work"],
        row["way"],
        f"{row['items']:,} {row['unit']}",
        _short(row["items_per_s"]),
        f"{wide:.0%}",
        _short(row["tokens_per_s"]),
        "" if row["speedup"] is None else f"{row['speedup']:.2f}×",
        "" if row["max_difference"] is None else f"{row['max_difference']:.1e}",
        f"{row['peak_memory_mb']:,.0f} MB",
        "" if row["share_of_peak"] is None else f"{row['share_of_peak']:.0%}",
    )


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, columns under each other: two to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*left, *right]).rstrip())
    return "\n".join(lines)


def _target_line(judged: dict[str, Any]) -> str:
    """Whether a promise is kept, in a line."""
    if judged["met"] is None:
        return f"not judged  {judged['target']} (a way that it needs was not measured)"
    return f"{'met' if judged['met'] else 'NOT MET':<10}  {judged['target']}: measured {judged['measured']:.3g}"
