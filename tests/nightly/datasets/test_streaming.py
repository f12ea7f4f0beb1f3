"""A large file is sampled in the memory of a small one: kept are the questions asked, and a few bytes for every row."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repo import SOURCES

SOURCE = SOURCES
PADDING = "x" * 5000
"""Rows that are long rather than many: it is bytes that must not be held, and rows that take the time."""
MEASURE = """
import resource, sys
from pathlib import Path
import polars
from anchorscope.answers.choose import choose_questions
from anchorscope.datasets.catalog import DatasetSpec, open_dataset

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    # Not `ru_maxrss`: on Linux it begins with the size of whoever started the process.
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))

few, many = (DatasetSpec("large", Path(path)) for path in sys.argv[1:])
choose_questions(open_dataset(few), 50, 0)
before = peak()
asked = choose_questions(open_dataset(many), 50, 0)
print(asked.read, asked.bad, asked.repeated, len(asked.questions), peak() - before)
"""


def rows(count: int) -> Iterator[dict[str, str]]:
    return (
        {"question": f"Who is {index}?", "answers": f"Name {index}", "note": PADDING}
        for index in range(count)
    )


def write_lines(path: Path, count: int) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(count))


def write_csv(path: Path, count: int) -> None:
    with path.open("w") as file:
        file.write("question,answers,note\n")
        file.writelines(",".join(row.values()) + "\n" for row in rows(count))


@pytest.mark.parametrize("make", [write_lines, write_csv])
def test_a_large_file_is_sampled_in_little_memory(
    tmp_path: Path, make: Callable[[Path, int], None]
) -> None:
    """In a process of its own, whose largest size tells. A row leaves two numbers of 64 bits behind, in sets."""
    count = 6000
    make(tmp_path / "few", 100)
    make(tmp_path / "many", count)
    assert (tmp_path / "many").stat().st_size > len(PADDING) * count
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "POLARS_MAX_THREADS": "1"}
    command = [
        sys.executable,
        "-c",
        MEASURE,
        str(tmp_path / "few"),
        str(tmp_path / "many"),
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    )
    *counts, kilobytes = map(int, ran.stdout.split())
    assert counts == [count, 0, 0, 50]
    assert kilobytes < 12 * 1024
