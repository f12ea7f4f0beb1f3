"""A run may come from anybody: whatever its lists and tables say, a command does its work or says one line."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from safetensors import safe_open
from safetensors.torch import load, save

from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.artefacts.tables import SCHEMAS
from anchorscope.detecting.detect import read_runs
from anchorscope.detecting.inputs import open_runs
from anchorscope.errors import UserError
from anchorscope.files import sha256
from anchorscope.report import comparison, detection
from commands import invoke
from kept_runs import questions_of, write_kept_run
from mutations import changed as with_other
from mutations import entries, mutations
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


def readers(run: Path, whole: Path, number: int = 0) -> tuple[Words, ...]:
    """Every command that reads a finished run; a comparison takes longer than the others, and is made for some."""
    out = run.parent / "compared"
    shutil.rmtree(out, ignore_errors=True)
    used = pl.read_parquet(whole / "items.parquet").filter(pl.col("status") == "used")
    compare = ("compare", run, whole, "--out", out, "--quiet")
    return (
        ("show", run),
        ("show", run, used["item_id"][0], "--json"),
        ("verify", run),
        ("view", run.parent, "--json", "--no-browser"),
        *([compare] if number % 6 == 0 else []),
    )


def cases_of_list(name: str, record: Any) -> Iterator[tuple[str, Any]]:
    for number, (what, changed) in enumerate(mutations(record, each=2)):
        if isinstance(changed, dict) and number % 2 == 0:
            yield f"{name}: {what}", changed


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of comparisons and detectors, which take most of their time."""
    for page in (comparison, detection):
        monkeypatch.setattr(page, "save_all", lambda *_: None)


@pytest.fixture
def run(small_run: SmallRun, tmp_path: Path) -> Path:
    return small_run.copy("finished", tmp_path / "runs" / "run")


def test_a_manifest_that_says_anything(run: Path, small_run: SmallRun) -> None:
    whole = read(run / "manifest.json")
    faults, tried = [], 0
    for number, (what, changed) in enumerate(cases_of_list("manifest", whole)):
        write(run / "manifest.json", changed)
        index = read(run / "index.json")
        index["results"]["manifest.json"] = {"sha256": sha256(run / "manifest.json")}
        write(run / "index.json", index)
        tried += 1
        commands = readers(run, small_run.finished, number)
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 100


def test_a_manifest_with_numbers_that_no_library_can_hold(
    run: Path, small_run: SmallRun
) -> None:
    whole = read(run / "manifest.json")
    faults, tried = [], 0
    for path in entries(whole):
        if not isinstance(reduce(getitem, path, whole), int):
            continue
        for value in (2**63, 10**400):
            write(run / "manifest.json", with_other(whole, path, value))
            tried += 1
            commands = readers(run, small_run.finished, number=1)
            faults += [f"{path}: {line}" for line in faults_of(*commands)]
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 20


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


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "features"])
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
        commands = readers(run, small_run.finished, number)
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
    path.write_bytes(whole)
    assert not faults, f"{len(faults)} of {tried}\n" + "\n".join(faults)
    assert tried > 10


# Folders made of runs


def test_a_comparison_that_says_anything(run: Path, small_run: SmallRun) -> None:
    out = run.parent / "compared"
    compare = readers(run, small_run.finished)[-1]
    result = invoke(*compare)
    assert result.exit_code == 0, result.stderr
    whole = read(out / "comparison.json")
    faults = []
    for what, changed in mutations(whole, each=1):
        write(out / "comparison.json", changed)
        commands = (("verify", out), ("view", out.parent, "--json", "--no-browser"))
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
        write(out / "comparison.json", whole)
    assert not faults, "\n".join(faults)


def test_a_study_that_says_anything(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "study"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(STUDY)
    record = {
        "name": "mine",
        "runs": ["a"],
        "failed": {"a": {"key": "0" * 64, "line": "why"}},
        "sha256": {"study.toml": sha256(folder / "study.toml")},
    }
    commands = (
        ("verify", folder),
        ("view", tmp_path / "runs", "--json", "--no-browser"),
        ("study", "status", "--out", folder),
    )
    faults = []
    for what, changed in mutations(record, each=4):
        write(folder / "study.json", changed)
        faults += [f"{what}: {line}" for line in faults_of(*commands)]
    assert not faults, "\n".join(faults)


STUDY = """name = "mine"
datasets = ["popqa"]

[[models]]
name = "a"
model = "smollm2-135m"
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return write_kept_run(tmp_path / "runs" / "kept", [questions_of("facts")])


def test_a_detection_that_says_anything(kept: Path) -> None:
    few = [
        "--folds",
        "2",
        "--seeds",
        "1",
        "--tosses",
        "0",
        "--resamples",
        "100",
        "--device",
        "cpu",
    ]
    names = ("--detectors", "confidence,probe", "--bundles", "probe")
    command = ("detect", kept, *few, *names)
    out = kept / "detectors"
    assert invoke(*command).exit_code == 0
    whole = read(out / "detection.json")
    faults = []
    for number, (what, changed) in enumerate(mutations(whole, each=1)):
        write(out / "detection.json", changed)
        commands = (("verify", kept), ("view", kept.parent, "--json", "--no-browser"))
        again = (command,) if number % 8 == 0 else ()
        faults += [f"{what}: {line}" for line in faults_of(*commands, *again)]
        write(out / "detection.json", whole)
    assert not faults, "\n".join(faults)


def detector_inputs(run: Path) -> str | None:
    """Reads all that detectors are fitted on; the line of a refusal."""
    try:
        for source in read_runs(open_runs([run])):
            assert source.setting.d_model > 0
            assert source.longest >= 0
    except UserError as error:
        return str(error)
    return None


def state_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The file with another header, or with other tensors."""
    whole = path.read_bytes()
    with safe_open(path, "pt") as handle:
        header = json.loads(handle.metadata()["anchorscope"])
    tensors = load(whole)
    for what, changed in mutations(header, each=4):
        yield what, save(tensors, metadata={"anchorscope": json.dumps(changed)})
    text = json.dumps(header)
    first = next(iter(tensors))
    others = {
        "shorter": tensors[first][:-1],
        "narrower": tensors[first][:, :-1].contiguous(),
        "flat": tensors[first].flatten(),
        "NaN": tensors[first] * float("nan"),
    }
    for what, other in others.items():
        yield what, save({**tensors, first: other}, metadata={"anchorscope": text})
    rest = {name: tensor for name, tensor in tensors.items() if name != first}
    yield "missing", save(rest, metadata={"anchorscope": text})
    yield "no header", save(tensors)
    yield "no tensors at all", b"mine"
    yield "half", whole[: len(whole) // 2]


def test_states_that_say_anything(kept: Path) -> None:
    assert detector_inputs(kept) is None
    path = kept / "states" / "facts" / "clean.safetensors"
    faults, refused = [], 0
    for what, content in list(state_files(path)):
        path.write_bytes(content)
        manifest = read(kept / "manifest.json")
        manifest["sha256"]["states/facts/clean.safetensors"] = sha256(path)
        write(kept / "manifest.json", manifest)
        try:
            line = detector_inputs(kept)
            refused += line is not None
        except Exception as error:
            faults.append(f"{what}: {error!r}")
    assert not faults, "\n".join(faults)
    assert refused > 20


def test_what_detectors_read_of_a_run_that_says_anything(kept: Path) -> None:
    faults = []
    whole = read(kept / "manifest.json")
    for what, changed in mutations(whole, each=4):
        write(kept / "manifest.json", changed)
        try:
            detector_inputs(kept)
        except Exception as error:
            faults.append(f"{what}: {error!r}")
    write(kept / "manifest.json", whole)
    for name in ("items.parquet", "states/facts/features.parquet"):
        table = pl.read_parquet(kept / name)
        for what, change in changes(name, table):
            change(table).write_parquet(kept / name)
            manifest = {
                **whole,
                "sha256": {**whole["sha256"], name: sha256(kept / name)},
            }
            write(kept / "manifest.json", manifest)
            try:
                detector_inputs(kept)
            except Exception as error:
                faults.append(f"{name} {what}: {error!r}")
        table.write_parquet(kept / name)
    assert not faults, "\n".join(faults)
