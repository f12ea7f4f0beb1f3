"""A run may come from anybody: whatever its lists and tables say, a command does its work or says one line."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.artefacts.tables import SCHEMAS
from anchorscope.files import sha256
from commands import invoke
from mutations import mutations
from whole_runs import SmallRun, tables_of

Words = tuple[object, ...]


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    record.pop("seal")
    return record


def write(path: Path, record: Any) -> None:
    path.write_text(json.dumps(sealed(record)))


def seal_results(run: Path) -> None:
    """Manifest and index with the hashes of the files as they are now."""
    manifest, index = read(run / "manifest.json"), read(run / "index.json")
    for name in manifest["sha256"]:
        manifest["sha256"][name] = sha256(run / name)
    write(run / "manifest.json", manifest)
    for name, facts in index["results"].items():
        facts["sha256"] = sha256(run / name)
        facts["size"] = (run / name).stat().st_size
    write(run / "index.json", index)


def faults_of(*commands: Words) -> Iterator[str]:
    """Commands that end in anything but their result, or one line and exit code 2."""
    for words in commands:
        result = invoke(*words)
        errors = [
            line for line in result.stderr.splitlines() if line.startswith("error:")
        ]
        if (result.exit_code, len(errors)) not in ((0, 0), (2, 1)):
            last = result.stderr.splitlines()[-1:]
            yield f"{words[0]}: {result.exit_code} {result.exception!r} {last}"


def readers(run: Path, other: Path) -> tuple[Words, ...]:
    """Every command that reads a finished run."""
    out = run.parent / "compared"
    shutil.rmtree(out, ignore_errors=True)
    return (
        ("show", run),
        ("show", run, "--json"),
        ("show", run, "facts/0"),
        ("verify", run),
        ("view", run.parent, "--json", "--no-browser"),
        ("compare", run, other, "--out", out, "--quiet", "--allow", "versions"),
    )


def cases_of_list(name: str, record: Any) -> Iterator[tuple[str, Any]]:
    for number, (what, changed) in enumerate(mutations(record, each=2)):
        if isinstance(changed, dict) and number % 2 == 0:
            yield f"{name}: {what}", changed


@pytest.fixture
def run(small_run: SmallRun, tmp_path: Path) -> Path:
    return small_run.copy("finished", tmp_path / "runs" / "run")


def test_a_manifest_that_says_anything(run: Path, small_run: SmallRun) -> None:
    whole = read(run / "manifest.json")
    faults, tried = [], 0
    for what, changed in cases_of_list("manifest", whole):
        write(run / "manifest.json", changed)
        index = read(run / "index.json")
        index["results"]["manifest.json"] = {"sha256": sha256(run / "manifest.json")}
        write(run / "index.json", index)
        tried += 1
        commands = readers(run, small_run.finished)
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 100


def test_an_index_that_says_anything(run: Path, small_run: SmallRun) -> None:
    """A run that goes on in such a folder gives the same numbers, or is refused."""
    faults, tried, again = [], 0, 0
    whole = read(run / "index.json")
    for what, changed in cases_of_list("index", whole):
        write(run / "index.json", changed)
        tried += 1
        commands = (
            ("verify", run),
            ("view", run.parent, "--json", "--no-browser"),
            ("show", run),
            ("run", run / "recipe.toml", "--out", run, "--quiet", "--no-report"),
        )
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
        if (run / "manifest.json").exists() and tables_of(run) != small_run.tables:
            faults.append(f"{what}: other numbers")
        if read_files(run) != read_files(small_run.finished):
            again += 1
            shutil.rmtree(run)
            small_run.copy("finished", run)
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 60


def read_files(run: Path) -> set[str]:
    return {path.name for path in run.rglob("*") if path.is_file()}


Change = Callable[[pl.DataFrame], pl.DataFrame]


def changes(name: str, table: pl.DataFrame) -> Iterator[tuple[str, Change]]:
    """Ways in which a table can be another one."""
    yield "empty", lambda table: table.head(0)
    yield "one row", lambda table: table.head(1)
    yield "twice", lambda table: pl.concat([table, table])
    for column in table.columns:
        yield f"without {column}", lambda table, column=column: table.drop(column)
        yield (
            f"{column} null",
            lambda table, column=column: table.with_columns(
                pl.lit(None, table.schema[column]).alias(column)
            ),
        )
        for value in ("x", -7, 10**9, float("nan"), True, [1]):
            yield (
                f"{column} = {value!r}",
                lambda table, column=column, value=value: table.with_columns(
                    pl.Series(column, [value] * table.height)
                ),
            )
        if isinstance(table.schema[column], pl.List):
            yield (
                f"{column} shorter",
                lambda table, column=column: table.with_columns(
                    pl.col(column).list.head(1)
                ),
            )


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_that_says_anything(name: str, run: Path, small_run: SmallRun) -> None:
    (path,) = run.glob(f"{name}.*")
    whole = path.read_bytes()
    is_csv = path.suffix == ".csv"
    table = (
        pl.read_csv(path, schema_overrides=SCHEMAS[name])
        if is_csv
        else pl.read_parquet(path)
    )
    faults, tried = [], 0
    for number, (what, change) in enumerate(changes(name, table)):
        if number % 3 == 2 and table.width > 6:
            continue
        try:
            other = change(table)
            if is_csv:
                other.write_csv(path)
            else:
                other.write_parquet(path)
        except pl.exceptions.PolarsError:  # a list has no place in a CSV file
            continue
        seal_results(run)
        tried += 1
        commands = readers(run, small_run.finished)
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
    path.write_bytes(whole)
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 10
