"""Golden files: what commands wrote, as short readable texts, compared line by line with what they write now.

A piece (`golden_runs.PIECES`) is a folder in `tests/golden`. A table of few rows is stored whole; of a longer one the
files `NAME.columns.csv` (a summary of every column) and `NAME.rows.csv` (some rows) are. Names, words and whole numbers
must be the same everywhere; floats may differ by the tolerances below. `hashes.json` holds the sha256 of every file as
it was written, for machines of a recorded numerics class: there nothing may differ.
"""

import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import load_file

GOLDEN = Path(__file__).parents[1] / "golden"
HASHES = "hashes.json"
OUT, STDOUT = "out", "stdout.json"
"""In the folder of a piece: what its command wrote, and what it printed."""
RELATIVE, ABSOLUTE, WAVE = 5e-3, 5e-4, 2e-3
"""How far floats may move on machines of another numerics class: with all weights changed at random by 1e-7 of their
size, the largest change is 3e-3 of a value (a calibrated probability that rests on one item), and 4e-4 of a `wave`."""
WHOLE_TABLE, SHOWN_ROWS, SHOWN_VALUES = 24, 8, 3
"""Rows of a table that is stored whole; rows shown of a longer one; entries shown of a list."""
SHOWN_DIFFERENCES = 20
"""Lines of a report about one file."""

_VOLATILE = {
    "seconds": "how long it took",
    "versions": "of libraries and of this package",
    "sha256": "depends on the last bits; hashes.json has those that matter",
    "inputs_sha256": "likewise, and on versions",
    "weights_sha256": "likewise",
    "content_sha256": "likewise",
    "manifest_sha256": "of a file that holds times",
}
"""Entries of JSON files that are left out, and why."""
_SAID_ELSEWHERE = (
    "sentence",
    "statement",
    "numbers",
    "topic",
    "unit",
    "method",
    "model",
    "key",
)
"""Entries of a reading that its text holds, or that follow from its claim."""
_NOT_STORED = re.compile(
    r"(figures|work)/|report\.(html|md)$|(index|manifest|comparison|detection)\.json$|\.lock$"
)
"""Pages and figures are for people; intermediate steps and manifests hold times, keys and versions."""


_DECIDED_BY_NOISE = re.compile(r".*weights\.safetensors (fitted/)?range/.*")
"""Tensors that rounding decides, stored without their values: principal directions, whose signs and order are free."""


def golden_texts(folder: Path) -> dict[str, str]:
    """A piece that was made now, as readable texts by file name."""
    texts = {
        STDOUT: _json_text(folder / STDOUT, {"observations", "readings"})
    }  # observations.json has them
    for name, path in _stored_files(folder):
        texts |= _TABLES.get(path.suffix, _other_texts)(name, path)
    texts["files.csv"] = "file\n" + "".join(
        f"{name}\n" for name, _ in _stored_files(folder)
    )
    return texts


def stored_texts(piece: str) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((GOLDEN / piece).glob("*"))
    }


def file_hashes(piece: str, folder: Path) -> dict[str, str]:
    """sha256 of what a piece's command wrote and printed: of tables the bytes, of JSON the text without what varies."""
    found = {STDOUT: _json_text(folder / STDOUT).encode()}
    for name, path in _stored_files(folder):
        found[name] = (
            path.read_bytes()
            if path.suffix in _TABLES
            else _other_texts(name, path)[_flat(name)].encode()
        )
    return {
        f"{piece}/{name}": hashlib.sha256(content).hexdigest()
        for name, content in sorted(found.items())
    }


def numerics(run: Path) -> dict[str, Any]:
    """The numerics class that a run was made with, and further libraries that bits depend on."""
    manifest = json.loads((run / OUT / "manifest.json").read_text(encoding="utf-8"))
    libraries = {
        name: metadata.version(name)
        for name in ("polars", "scipy", "scikit-learn", "safetensors")
    }
    return {
        **manifest["numerics"],
        "libraries": libraries,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def recorded_hashes(now: Mapping[str, Any]) -> dict[str, str] | None:
    """The hashes that were recorded on machines of this numerics class; None where there are none."""
    place = GOLDEN / HASHES
    classes = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    return next((one["sha256"] for one in classes if one["numerics"] == now), None)


# Texts


def _stored_files(folder: Path) -> Iterator[tuple[str, Path]]:
    root = folder / OUT
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _NOT_STORED.search(name):
            yield name, path


def _flat(name: str) -> str:
    return name.replace("/", "__")


def _table_texts(name: str, path: Path) -> dict[str, str]:
    read = (
        pl.read_parquet
        if path.suffix == ".parquet"
        else lambda place: pl.read_csv(place, infer_schema_length=None)
    )
    table, stem = read(path), _flat(name.rpartition(".")[0])
    noise = [
        one for one in table.columns if _DECIDED_BY_NOISE.fullmatch(f"{name} {one}")
    ]
    table = table.with_columns(pl.lit("not stored").alias(one) for one in noise)
    if table.height <= WHOLE_TABLE:
        return {
            f"{stem}.csv": _csv(
                [table.columns, *(map(_cell, row) for row in table.iter_rows())]
            )
        }
    step = (table.height - 1) / (SHOWN_ROWS - 1)
    shown = sorted({round(step * number) for number in range(SHOWN_ROWS)})
    rows = [[str(at), *map(_cell, table.row(at))] for at in shown]
    columns = [
        [one, str(table[one].dtype), str(table.height), *_summary(table[one].to_list())]
        for one in table.columns
    ]
    return {
        f"{stem}.columns.csv": _csv([["column", "type", "rows", *_SUMMARY], *columns]),
        f"{stem}.rows.csv": _csv([["row", *table.columns], *rows]),
    }


def _tensor_texts(name: str, path: Path) -> dict[str, str]:
    tensors = sorted(load_file(path).items())
    rows = [
        [key, f"{value.dtype} {list(value.shape)}", *_summary(value.ravel().tolist())]
        for key, value in tensors
        if not _DECIDED_BY_NOISE.fullmatch(f"{name} {key}")
    ]
    return {f"{_flat(name)}.csv": _csv([["tensor", "type", *_SUMMARY], *rows])}


_TABLES = {
    ".csv": _table_texts,
    ".parquet": _table_texts,
    ".safetensors": _tensor_texts,
}
_SUMMARY = ("nulls", "distinct", "sha256", "low", "mean", "high", "wave")


def _summary(values: list[Any]) -> list[str]:
    """A column in one line: floats by their distribution, all else by its hash.

    `wave` is a sum with a weight for every place, in percent of the sum of sizes: it moves when one value does, or two
    are swapped.
    """
    flat = list(_leaves(values))
    floats = [one for one in flat if isinstance(one, float)]
    if not floats:
        texts = [json.dumps(one) for one in values]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        return [str(values.count(None)), str(len(set(texts))), digest, "", "", "", ""]
    numbers = np.array([one for one in floats if math.isfinite(one)])
    weights = (np.arange(len(numbers)) * 7919 % 1009) / 504 - 1
    wave = float(100 * (weights @ numbers) / (np.abs(numbers).sum() or 1))
    missing = f"{len(flat) - len(floats)} + {len(floats) - len(numbers)} not finite"
    spread = (
        (numbers.min(), numbers.mean(), numbers.max())
        if len(numbers)
        else (math.nan,) * 3
    )
    return [
        missing,
        "",
        "",
        *(_cell(float(one)) for one in spread),
        _cell(round(wave, 5)),
    ]


def _leaves(value: Any) -> Iterator[Any]:
    """The entries of lists within lists."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _cell(value: Any) -> str:
    """A value as text: a float has six digits and always a point, an exponent or a name."""
    if isinstance(value, float):
        text = f"{value:.6g}"
        return text if re.search(r"[.en]", text) else f"{text}.0"
    if isinstance(value, list):
        shown = " ".join(map(_cell, value[:SHOWN_VALUES]))
        return (
            f"[{shown} … {len(value)}]" if len(value) > SHOWN_VALUES else f"[{shown}]"
        )
    return (
        ""
        if value is None
        else json.dumps(value)
        if isinstance(value, dict)
        else str(value)
    )


def _csv(rows: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _other_texts(name: str, path: Path) -> dict[str, str]:
    return {
        _flat(name): _json_text(path)
        if path.suffix == ".json"
        else _without_folders(path.read_text("utf-8"))
    }


def _json_text(path: Path, by_id: Set[str] = frozenset()) -> str:
    """JSON without what varies, floats with six digits, short objects on one line; of `by_id` only the ids."""
    found = _steady(json.loads(_without_folders(path.read_text(encoding="utf-8"))))
    if isinstance(found, dict):
        found |= {
            name: [one["id"] for one in found[name]] for name in by_id if name in found
        }
    return _json_lines(found) + "\n"


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        if "sentence" in value and "standing" in value:  # a reading; a run has hundreds
            value = {
                name: one
                for name, one in value.items()
                if name not in _SAID_ELSEWHERE and one is not None
            }
        return {
            name: _steady(one) for name, one in value.items() if name not in _VOLATILE
        }
    if isinstance(value, list):
        return [_steady(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _json_lines(value: Any, indent: str = "") -> str:
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(short) <= 118:
        return short
    deeper = indent + " "
    if isinstance(value, dict):
        inside = [
            f"{deeper}{json.dumps(name)}: {_json_lines(one, deeper)}"
            for name, one in value.items()
        ]
        return "{\n" + ",\n".join(inside) + f"\n{indent}}}"
    return (
        "[\n"
        + ",\n".join(f"{deeper}{_json_lines(one, deeper)}" for one in value)
        + f"\n{indent}]"
    )


def _without_folders(text: str) -> str:
    """Absolute paths differ from checkout to checkout, and the cache's with every change of the code."""
    return re.sub(
        r'[^\s"\'=:]*golden-([a-z-]+)-[0-9a-f]{8}', lambda found: found[1].upper(), text
    )


# Comparing


@dataclass(frozen=True)
class Change:
    file: str
    line: int
    old: str
    new: str

    def __str__(self) -> str:
        """In one line; of long lines the part that differs."""
        differs = next(
            (
                at
                for at, (one, two) in enumerate(zip(self.old, self.new, strict=False))
                if one != two
            ),
            0,
        )
        start = max(differs - 40, 0) if max(len(self.old), len(self.new)) > 100 else 0
        old, new = (
            f"{'…' * bool(start)}{text[start:][:100]}" for text in (self.old, self.new)
        )
        return f"  line {self.line}: {old} → {new}"


def compare_texts(
    old: Mapping[str, str], new: Mapping[str, str], exact: bool = False
) -> list[Change]:
    """Where the texts of a piece differ; numbers by more than the tolerances, or at all where `exact`."""
    changes = []
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            changes.append(
                Change(
                    name,
                    0,
                    *(("there", "missing") if name in old else ("missing", "there")),
                )
            )
            continue
        absolute = WAVE if ".columns." in name or ".safetensors." in name else ABSOLUTE
        lines = zip_longest(
            old[name].splitlines(), new[name].splitlines(), fillvalue="(no line)"
        )
        changes += [
            Change(name, number, *pair)
            for number, pair in enumerate(lines, 1)
            if pair[0] != pair[1]
            and (exact or not _same_within_tolerance(*pair, absolute))
        ]
    return changes


def report_changes(changes: list[Change], piece: str) -> str:
    """The changes in words, at most some lines per file."""
    lines = []
    for name in dict.fromkeys(change.file for change in changes):
        own = [change for change in changes if change.file == name]
        lines += [
            f"{piece}/{name}: {len(own)} lines differ",
            *map(str, own[:SHOWN_DIFFERENCES]),
        ]
    return "\n".join(lines)


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?e[+-]\d+|-?\d+\.\d+")


def _same_within_tolerance(old: str, new: str, absolute: float) -> bool:
    """The rule for other machines: two lines differ only in numbers with a point, and these within the tolerances.

    A number inside a sentence may also differ in its last digit; one that is a whole cell or value may not.
    """
    if _NUMBER.split(old) != _NUMBER.split(new):
        return False
    for one, two in zip(_NUMBER.finditer(old), _NUMBER.finditer(new), strict=True):
        before, after = old[: one.start()], old[one.end() :]
        in_sentence = not (
            re.search(r"(^|,|: |\[|, )$", before) and re.match(r"$|,|\]|\}", after)
        )
        digit = (
            1.01 * 10.0 ** -len(one[0].partition(".")[2])
            if in_sentence and "e" not in one[0]
            else 0.0
        )
        if not math.isclose(
            float(one[0]), float(two[0]), rel_tol=RELATIVE, abs_tol=max(absolute, digit)
        ):
            return False
    return True
