"""The benchmark of scale as text for a person."""

from typing import Any

from anchorscope.bench.table import grid, target_line

_HEAD = ("pass", "executor", "items", "shards", "seconds", "spread", "s/shard", "MB/shard", "coordinator", "all of it")


def render_scale(record: dict[str, Any]) -> str:
    """All of it."""
    machine, work = record["machine"], record["workload"]
    where = machine["gpu"] or f"{record['threads']} of {machine['cores']} cores per worker"
    about = (
        f"{record['model']} in {record['dtype']} on {where}; {work['about']}: {work['shared_tokens']} tokens shared, "
        f"{work['own_tokens_mean']:.1f} own; medians of {record['repeats']}; the bits of all executors are equal"
    )
    parts = [about, grid([_HEAD, *(_cells(row) for row in record["rows"])]), "\n".join(_executors(record))]
    ratios = [f"{name}: {value:.2f}×" for name, value in record["ratios"].items()]
    parts += ["\n".join(lines) for lines in (ratios, [target_line(one) for one in record["targets"]]) if lines]
    if (costs := record["costs"]) is not None:
        parts.append(
            f"the coordinator's process takes {1e3 * costs['seconds_per_shard']:.2f} ms per shard and "
            f"{1e3 * costs['seconds_per_mb']:.2f} ms per MB that comes back (fitted)"
        )
    return "\n\n".join(parts)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    wide = (row["seconds_max"] - row["seconds_min"]) / row["seconds"]
    through_workers = row["bytes_received"] > 0
    return (
        row["pass"],
        row["executor"],
        f"{row['items']:,}",
        f"{row['shards']:,}",
        f"{row['seconds']:.3g}",
        f"{wide:.0%}",
        f"{row['seconds_per_shard']:.3g}",
        f"{row['bytes_received'] / row['shards'] / 1e6:.3g}" if through_workers else "",
        f"{row['coordinator_seconds'] / row['seconds']:.1%}" if through_workers else "",
        f"{row['cpu_seconds'] / row['seconds']:.1%}" if through_workers else "",
    )


def _executors(record: dict[str, Any]) -> list[str]:
    return [
        f"{one['executor']}: {one['seconds']:.3g} s in passes"
        + (f", {one['coordinator_share']:.1%} of it the coordinator" if one["coordinator_share"] else "")
        + f"; loading took {one['load_seconds']:.1f} s"
        for one in record["executors"]
    ]
