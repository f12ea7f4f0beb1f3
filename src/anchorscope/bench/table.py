"""The result as text for a person: rates, speedups, differences, memory, targets, growth."""

from collections.abc import Sequence
from typing import Any

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
        parts.append("\n".join(_target(one) for one in record["targets"]))
    if record["growth"]:
        parts.append("\n".join(_growth(one) for one in record["growth"]))
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
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*left, *right]).rstrip())
    return "\n".join(lines)


def _target(one: dict[str, Any]) -> str:
    if one["met"] is None:
        return f"not judged  {one['target']} (a way that it needs was not measured)"
    return f"{'met' if one['met'] else 'NOT MET':<10}  {one['target']}: measured {one['measured']:.3g}"


def _growth(one: dict[str, Any]) -> str:
    steps = ", ".join(f"{size}: {seconds:.2f} s" for size, seconds in zip(one["sizes"], one["seconds"], strict=True))
    memory = ", ".join(f"{added:,.0f}" for added in one["added_mb"])
    return f"with {one['axis']}: {steps}; exponent {one['exponent']:.2f}, {one['verdict']}; memory added {memory} MB"
