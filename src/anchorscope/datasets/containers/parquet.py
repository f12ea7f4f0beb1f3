"""Parquet, in batches of rows, whatever the size of its row groups."""

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from anchorscope.datasets.bad_rows import Row
from anchorscope.datasets.containers.bytes_of import unpacked
from anchorscope.errors import UserError

MAGIC = b"PAR1"
"""How a Parquet file begins and ends."""
_BATCH = 2048


def parquet_rows(file: BinaryIO, path: Path) -> Iterator[tuple[int, Row]]:
    """Number and content of every row."""
    import polars as pl  # only here: help has to come at once

    with ExitStack() as held:
        # Parquet is read from its end, so a gzipped one must be unpacked first.
        on_disk = held.enter_context(unpacked(file)) if isinstance(file, gzip.GzipFile) else path
        with on_disk.open("rb") as raw:
            raw.seek(-min(len(MAGIC), on_disk.stat().st_size), 2)
            if raw.read() != MAGIC:
                raise UserError(
                    f"{path} begins like a Parquet file but does not end like one: cut off. Fetch it again."
                )
        number = 0
        try:
            table = pl.scan_parquet(on_disk, glob=False)
            while (batch := table.slice(number, _BATCH).collect()).height:
                for row in batch.iter_rows(named=True):
                    number += 1
                    yield number, row
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OverflowError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{path} is a broken Parquet file, after row {number} ({first[:120]}). Fetch it again."
            ) from None
