"""Only regular files are read, each through one handle; what is wrong with a file is one line, and nothing hangs."""

import gzip
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from anchorscope.datasets.catalog import DatasetSpec, open_dataset, split_specs
from anchorscope.datasets.files import hash_of
from anchorscope.errors import UserError
from sample_files import NQ, OWN, json_lines, json_list, parquet, read, refusal, write

LINES = json_lines(NQ)


def test_a_pipe_is_refused_and_nothing_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert f"{tmp_path / 'pipe'} is a pipe or a device" in refusal(tmp_path / "pipe")


def test_a_pipe_of_the_shell_loses_no_rows(tmp_path: Path) -> None:
    """`<(…)` and `/dev/stdin`: a part of it would be gone after the format was recognised."""
    reader, writer = os.pipe()
    try:
        os.write(writer, LINES)
        path = Path(f"/dev/fd/{reader}")
        assert "is a pipe" in refusal(path)
        assert os.read(reader, 10_000) == LINES
    finally:
        os.close(reader)
        os.close(writer)


def test_devices_sockets_and_folders(tmp_path: Path) -> None:
    for device in ("/dev/null", "/dev/zero"):
        assert refusal(Path(device)).startswith(f"{device} is a pipe or a device")
    assert f"{tmp_path} is a directory. Give the path of a question file" in refusal(
        tmp_path
    )


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert f"There is no file {tmp_path / 'a'}" in refusal(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "Too many levels of symbolic links" in refusal(tmp_path / "a")
    assert "File name too long" in refusal(tmp_path / ("x" * 300))
    assert "Not a directory" in refusal(write(tmp_path, LINES) / "inner")
    assert len(refusal(Path("/" + "x/" * 50_000))) < 2000


def test_commas_in_a_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.csv", "c.csv", "d,e,atlas", "f", "f,g"):
        write(tmp_path, LINES, name)
    assert split_specs(["file:a,b.csv"]) == ("file:a,b.csv",)
    assert split_specs(["nq=d,e,atlas", "atlas,"]) == ("nq=d,e,atlas", "atlas")
    assert split_specs(["file:f,g"]) == ("file:f,g",)
    # Where no such file is, a comma is between datasets, as ever.
    assert split_specs(["file:c.csv,popqq"]) == ("file:c.csv", "popqq")
    assert split_specs(["file:gone,b.csv", "popqa"]) == ("file:gone", "b.csv", "popqa")
    assert split_specs(["a,b.csv", "atlas,c.csv", "f,g"]) == (
        "a,b.csv",
        "atlas",
        "c.csv",
        "f,g",
    )


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    path, other = write(tmp_path, LINES * 50), write(tmp_path, b"else", "other")
    reading = open_dataset(DatasetSpec("mine", path))
    other.replace(path)
    assert len(list(reading)) == 50 * len(NQ)
    again = write(tmp_path, parquet(OWN), "again")
    reading = open_dataset(DatasetSpec("mine", again))
    again.unlink()
    assert len(list(reading)) == len(OWN)


def test_the_hash_is_of_what_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, LINES)
    known = hash_of(path)
    assert len(list(open_dataset(DatasetSpec("mine", path), sha256=known))) == len(NQ)
    write(tmp_path, json_lines(OWN))
    with pytest.raises(UserError, match="was changed since the run began"):
        open_dataset(DatasetSpec("mine", path), sha256=known)


def test_gzip_in_all_its_ways(tmp_path: Path) -> None:
    packed = gzip.compress(LINES, mtime=0)
    assert len(read(write(tmp_path, packed + packed)).questions) == 2 * len(NQ)
    assert len(
        read(write(tmp_path, packed + b"\0" * 700 + packed + b"\0" * 9)).questions
    ) == 2 * len(NQ)
    assert "no text at all" in refusal(write(tmp_path, gzip.compress(packed)))
    assert "is empty" in refusal(write(tmp_path, gzip.compress(b"")))
    for broken in (
        packed + b"garbage",
        packed[:10],
        packed[:2],
        packed[:-4],
        packed[:3] + b"\xff" * 200_000,
    ):
        assert "is a broken or cut-off gzip file" in refusal(write(tmp_path, broken))


def test_damaged_gzip_is_one_line(tmp_path: Path) -> None:
    """Flipped bytes are found out in the header, in the stream or by the checksum."""
    packed, draw = gzip.compress(json_list(OWN) * 20, mtime=0), random.Random(0)
    for _ in range(150):
        raw = bytearray(packed)
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        path = write(tmp_path, bytes(raw))
        with suppress(UserError):  # any other exception is a mistake of ours
            read(path, "skip")
