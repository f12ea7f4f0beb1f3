"""Faults of the machine become one line, whoever reports them; mistakes of ours keep their traceback."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file

import anchorscope
from anchorscope.cli import inspect
from anchorscope.errors import (
    UserError,
    fault_in_words,
    faults_as_user_errors,
    naming,
    system_fault,
)
from anchorscope.files import replacing, write_json
from commands import invoke


@pytest.mark.parametrize(
    "name",
    [
        "ENOSPC",
        "EDQUOT",
        "EROFS",
        "EACCES",
        "EIO",
        "ENOENT",
        "EMFILE",
        "EAGAIN",
        "ENODEV",
    ],
)
def test_every_fault_is_one_line_and_exit_code_2(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = getattr(errno, name)

    def failing(*_: object) -> Path:
        raise OSError(number, os.strerror(number), "/some/place")

    monkeypatch.setattr(inspect, "install", failing)
    result = invoke("models", "--install", "smollm2-135m")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"error: {os.strerror(number)} at '/some/place'; ")
    assert result.stderr.endswith(
        " Nothing half made was kept, the same command starts again.\n"
    )


@contextmanager
def small_files() -> Iterator[None]:
    """The system refuses files of more than a few bytes, as `ulimit -f` does; Python ignores the signal for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["text", "csv", "parquet", "safetensors", "png"])
def test_what_libraries_make_of_a_refused_write_is_known(
    kind: str, tmp_path: Path
) -> None:
    table, array, figure = (
        pl.DataFrame({"a": list(range(100_000))}),
        {"a": torch.zeros(100_000)},
        Figure(),
    )
    place = tmp_path / "file"
    write = {
        "text": lambda: place.write_text("x" * 100_000),
        "csv": lambda: table.write_csv(place),
        "parquet": lambda: table.write_parquet(place),
        "safetensors": lambda: save_file(array, place),
        "png": lambda: figure.savefig(place, format="png"),
    }[kind]
    with (
        pytest.raises(UserError, match=r"^File too large at .*file'; raise"),
        faults_as_user_errors(),
        naming(place),
        small_files(),
    ):
        write()


def test_wrapped_faults_are_found_and_our_mistakes_are_not() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    by_text = ValueError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    )
    assert getattr(system_fault(by_text), "errno", None) == errno.ENOSPC
    for raised, is_fault in ((full, True), (OSError(errno.ENOENT, "gone"), False)):
        cleaning = AttributeError("a library's own clean-up fails next")
        cleaning.__context__ = raised
        assert (system_fault(cleaning) is not None) is is_fault
    caused = RuntimeError("cannot")
    caused.__cause__ = full
    assert system_fault(caused) is full
    for ours in (
        ZeroDivisionError(),
        KeyError("x"),
        OSError("without a number"),
        UserError("x"),
    ):
        assert system_fault(ours) is None
    with pytest.raises(ZeroDivisionError), faults_as_user_errors():
        raise ZeroDivisionError


def test_no_memory_is_told() -> None:
    with (
        pytest.raises(UserError, match=r"^Unable to allocate .*; close other"),
        faults_as_user_errors(),
    ):
        np.empty(1 << 55, dtype=np.uint8)


def test_the_place_is_named_where_the_system_names_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, naming(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert f"at {str(tmp_path)!r}" in fault_in_words(caught.value)
    write_json(tmp_path / "a.json", [1])
    with (
        pytest.raises(OSError, match="No space") as caught,
        replacing(tmp_path / "a.json"),
    ):
        raise ValueError("I/O error: No space left on device (os error 28)")
    assert caught.value.filename == str(tmp_path / "a.json")
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_python_callers_get_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", str(tmp_path))

    monkeypatch.setattr("anchorscope.pipeline.run_recipe", failing)
    with pytest.raises(
        UserError, match=r"^Disk quota exceeded at .* Then do the same again\."
    ):
        anchorscope.run(out=tmp_path / "run", progress=None)
