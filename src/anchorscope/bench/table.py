"""The result: one row per work and implementation, and all rows as text for a person.

The text shows rates, speedups, differences, memory and targets.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from anchorscope.bench.meter import Measured


@dataclass(frozen=True)
class Row:
    """What was measured; what an implementation could not do is None and has a note."""

    work: str
    way: str
    """Name of the implementation; the key is part of the JSON object's contract."""
    unit: str = "items"
    """What is counted: `items`, `fits` or `questions`."""
    items: int | None = None
    """How many of them one repeat ran."""
    seconds: float | None = None
    """Of one repeat, the median."""
    seconds_min: float | None = None
    seconds_max: float | None = None
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    """Tokens through all blocks, without padding; one that runs through half of the blocks counts half."""
    speedup: float | None = None
    """The rate of `anchorscope` over this one's."""
    max_difference: float | None = None
    """What `difference_is` says."""
    relative_difference: float | None = None
    """The largest difference over the largest value."""
    difference_is: str | None = None
    """What the two differences compare."""
    auc_difference: float | None = None
    """Probes only: the largest difference of an AUC on held-out items."""
    peak_memory_mb: float | None = None
    """Of the device that computes, weights included; what other implementations hold is not counted."""
    host_peak_mb: float | None = None
    device_peak_mb: float | None = None
    added_memory_mb: float | None = None
    """What the work took beyond the process with its model."""
    share_of_peak: float | None = None
    """2 × parameters of the blocks × tokens run ÷ seconds ÷ the measured matrix-multiply peak."""
    streaming_items_per_s: float | None = None
    """Ours only: the knockout as a run does it, every state through the probes, only log-odds fetched."""
    streaming_share_of_peak: float | None = None
    setting: str | None = None
    """What the implementation chose before it was measured."""
    note: str | None = None
    """Why something is missing."""

    def record(self) -> dict[str, Any]:
        """As the JSON object shows it."""
        return asdict(self)

    def timed(
        self,
        items: int,
        taken: Sequence[Measured],
        held: tuple[float, float],
        tokens: float | None = None,
        peak_tokens_per_s: float | None = None,
    ) -> "Row":
        """The same row with what its repeats took; `held` is what the process with its model holds of both memories."""
        seconds = median(one.seconds for one in taken)
        host = max(one.host_added_mb for one in taken)
        on_gpu = [one.device_added_mb for one in taken if one.device_added_mb is not None]
        device = max(on_gpu) if on_gpu else None
        return replace(
            self,
            items=items,
            seconds=seconds,
            seconds_min=min(one.seconds for one in taken),
            seconds_max=max(one.seconds for one in taken),
            items_per_s=items / seconds,
            tokens_per_s=None if tokens is None else tokens / seconds,
            peak_memory_mb=held[0] + host if device is None else held[1] + device,
            host_peak_mb=held[0] + host,
            device_peak_mb=None if device is None else held[1] + device,
            added_memory_mb=host if device is None else device,
            share_of_peak=None if tokens is None or peak_tokens_per_s is None else tokens / seconds / peak_tokens_per_s,
        )


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows with our rate over each one's, within one work."""
    ours = {row.work: row.items_per_s for row in rows if row.way == "anchorscope" and row.items_per_s is not None}
    return [
        replace(
            row,
            speedup=None if row.items_per_s is None or ours.get(row.work) is None else ours[row.work] / row.items_per_s,
        )  # type: ignore[operator]
        for row in rows
    ]


_HEAD = ("work", "way", "done", "per s", "spread", "tokens/s", "speedup", "difference", "memory", "of peak")


def render(record: dict[str, Any]) -> str:
    """All of it."""
    parts = [_about(record), grid([_HEAD, *(_cells(row) for row in record["rows"])])]
    notes = [f"{row['work']}, {row['way']}: {row['note']}" for row in record["rows"] if row["note"]]
    chosen = [f"{row['way']} ({row['work']}): {row['setting']}" for row in record["rows"] if row["setting"]]
    meanings = dict.fromkeys(
        f"difference in {row['work']}: {row['difference_is']}" for row in record["rows"] if row["difference_is"]
    )
    parts += ["\n".join(lines) for lines in (notes, chosen, list(meanings)) if lines]
    if record["targets"]:
        parts.append("\n".join(target_line(one) for one in record["targets"]))
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


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, columns under each other: two to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*left, *right]).rstrip())
    return "\n".join(lines)


def target_line(one: dict[str, Any]) -> str:
    """Whether a promise is kept, in a line."""
    if one["met"] is None:
        return f"not judged  {one['target']} (a way that it needs was not measured)"
    return f"{'met' if one['met'] else 'NOT MET':<10}  {one['target']}: measured {one['measured']:.3g}"
