"""Turns a Parquet file into JSON lines, in a process of its own with a limit of memory.

A few kilobytes of Parquet may unpack to gigabytes, whatever its footer says, and the library has no limit for that; so
the process has one, and if it dies of it, nothing else does. It is started by its path and imports nothing of ours.

Standard output: the number of rows, a JSON object per row, then "." if all went well, or "!" and the reason.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

HEAVY = ("entity_pages", "search_results", "context", "supporting_facts", "EntityPages", "SearchResults")
"""Columns of TriviaQA and HotpotQA that no question needs; only their names are given on."""
_BATCH, _ROWS_TOGETHER, _BYTES_TOGETHER = 2048, 512, 8_000_000


def _limit_memory(more: int) -> None:
    """So many bytes may be taken beyond what the process has now. (Maps of the file itself do not count.)

    Only Linux has such a limit.
    """
    if sys.platform == "linux":
        import resource

        with open("/proc/self/status", encoding="ascii") as file:
            now = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
        resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: int) -> None:
    """The process ends if it computes for so long without asking again; Windows has no such clock."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _rows(frame: Any, pl: Any) -> Iterator[dict[str, Any]]:
    """The rows; of long ones few are made at a time."""
    longest = frame.select(pl.col(pl.String).str.len_bytes().max()).row(0)
    together = max(1, min(_ROWS_TOGETHER, _BYTES_TOGETHER // (1 + sum(size or 0 for size in longest))))
    return iter(frame.iter_rows(named=True, buffer_size=together))


def _convert(path: str, out: BinaryIO, columns: int, seconds: int) -> None:
    import polars as pl

    table = pl.scan_parquet(path, glob=False)
    schema = table.collect_schema()
    if len(schema) > columns:
        raise ValueError(f"it has {len(schema):,} columns; at most {columns:,} are read")
    unneeded = [pl.lit(None).alias(name) for name in HEAVY if name in schema and schema[name].is_nested()]
    # What JSON cannot say (a date, bytes) becomes a list of its text: it is no single number or text.
    encode = json.JSONEncoder(ensure_ascii=False, default=lambda value: [str(value)[:80]]).encode
    out.write(b"%d\n" % table.select(pl.len()).collect().item())
    for batch in table.with_columns(unneeded).collect_batches(chunk_size=_BATCH, maintain_order=True):
        _limit_time(seconds)
        for row in _rows(batch, pl):
            out.write(encode(row).encode() + b"\n")


def main(path: str, memory: int, columns: int, seconds: int) -> None:
    """Converts the file at the path to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.fdopen(1, "wb", 1 << 16)
    import polars as pl  # before the limit: the library itself takes some

    _limit_memory(memory)
    _limit_time(seconds)
    try:
        _convert(path, out, columns, seconds)
        out.write(b".\n")
    except MemoryError:
        os._exit(signal.SIGABRT)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OverflowError) as error:
        out.write(b"!" + (str(error).splitlines() or [type(error).__name__])[0][:200].encode(errors="replace") + b"\n")
    out.flush()
    os._exit(0)  # at once: its threads may be stuck


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
