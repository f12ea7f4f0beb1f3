"""A large file is sampled in the memory of a small one: kept are the questions asked, and a few bytes for every row."""

import gzip
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


READ = """
import resource, sys
from pathlib import Path
import polars
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.errors import UserError

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))

before = peak()
try:
    list(open_dataset(DatasetSpec("large", Path(sys.argv[1])), "skip"))
except UserError as error:
    print(error)
print(peak() - before)
"""


def read_elsewhere(path: Path) -> tuple[str, int]:
    """What a process of its own says of the file, and the kilobytes that reading took."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    refusal, kilobytes = done.stdout.splitlines()
    return refusal, int(kilobytes)


@pytest.mark.parametrize("first", [b'{"question": "', b'question,answers\n"'])
def test_a_line_of_a_gigabyte_in_a_small_file_is_refused_in_little_memory(
    tmp_path: Path, first: bytes
) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(first)
        for _ in range(1000):
            file.write(b"x" * 10**6)
    assert path.stat().st_size < 10**7
    refusal, kilobytes = read_elsewhere(path)
    number = 1 + first.count(b"\n")
    expected = f"Line {number} of {path} has more than 100 MB, unpacked."
    assert refusal.startswith(expected)
    assert kilobytes < 350_000


@pytest.mark.parametrize(
    ("unit", "line"),
    [
        (b"{},", "/bomb.gz has no known format"),
        (b"x", "An entry of "),
        (b"[", "/bomb.gz is a broken or cut-off JSON list"),
        (b" ", "/bomb.gz has no known format"),
    ],
)
def test_a_list_of_many_megabytes_in_a_small_file_is_read_in_little_memory(
    tmp_path: Path, unit: bytes, line: str
) -> None:
    """All entries at once would take twenty times the memory of their text."""
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'[{"question": "' if unit == b"x" else b"[")
        for _ in range(300):
            file.write(unit * (10**6 // len(unit)))
        file.write(b"{}]")
    refusal, kilobytes = read_elsewhere(path)
    assert line in refusal
    assert kilobytes < 700_000


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
