"""What a tracker of experiments is told of a finished run: parameters, tags, numbers, curves over layers, files.

Every number goes with its interval: NAME, NAME.low, NAME.high. A curve's steps are the layers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.durable import sha256
from anchorscope.artefacts.finished import FinishedRun
from anchorscope.schema import SHARE_SCHEMA

_SUMMARY = ("quantity", "intervention", "assignment", "group", "site", "position")
_FILES = ("report.html", "report.md", "recipe.toml", "manifest.json", "answer.json", "observations.json")
_TABLES = ("summary", "probe_scores", "curves", "question_share", "question_share_tests", "experiments")
_OF_MODEL = ("name", "source", "fingerprint", "tokenizer", "n_layers", "dtype", "device")
_LETTERS = re.compile(r"[^\w\-. /]")  # what names may have in each of the trackers


@dataclass(frozen=True)
class RunRecords:
    """A finished run, as trackers take it."""

    name: str
    parameters: dict[str, str]
    """The recipe."""
    tags: dict[str, str]
    """Model, weights, question files, versions: what makes two runs the same or not."""
    metrics: dict[str, float]
    """Single numbers, each with the ends of its interval."""
    curves: dict[int, dict[str, float]]
    """Numbers by layer."""
    tables: dict[str, Path]
    """The result tables, as CSV."""
    files: tuple[tuple[Path, str], ...]
    """Report, figures, recipe, manifest: each with the folder that it goes into."""


def records_of(run: FinishedRun) -> RunRecords:
    """Everything that is logged of a run."""
    site, position = run.recipe.site, run.recipe.position
    scores, curves = run.csv("probe_scores"), run.csv("curves")
    shares = run.csv_where_made("question_share", SHARE_SCHEMA)
    metrics: dict[str, float] = {}
    for row in run.csv("summary").iter_rows(named=True):
        metrics |= _with_interval(_name(row["dataset"], *(row[column] for column in _SUMMARY)), row, "value")
    for row in scores.filter(pl.col("layer").is_null()).iter_rows(named=True):
        metrics |= _with_interval(_name(row["dataset"], "auc", row["kind"], row["intervention"]), row, "auc")
    here = pl.col("layer").is_not_null() & (pl.col("site") == site) & (pl.col("position") == position)
    by_layer: dict[int, dict[str, float]] = {}
    _add(by_layer, scores.filter(here), "auc", "auc by layer", ("kind", "intervention"))
    _add(
        by_layer,
        curves.filter(here & (pl.col("truth") == "all")),
        "delta_p",
        "delta_p",
        ("intervention", "variant", "assignment", "group"),
    )
    _add(
        by_layer, shares.filter(here & (pl.col("truth") == "all")), "share", "question share", ("intervention", "group")
    )
    tables = {name: run.path / f"{name}.csv" for name in _TABLES if (run.path / f"{name}.csv").is_file()}
    tags = tags_of(run.manifest, sha256(run.path / "manifest.json"))
    return RunRecords(
        run.path.name,
        parameters_of(run.recipe.model_dump()),
        tags,
        metrics,
        dict(sorted(by_layer.items())),
        tables,
        tuple(_files(run.path)),
    )


def parameters_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as texts; lists with commas."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
    }


def tags_of(manifest: Mapping[str, Any], manifest_sha256: str) -> dict[str, str]:
    """What the run was made of: the model with its fingerprint, the question files with theirs, versions."""
    model = manifest["model"]
    tags = {f"model.{name}": str(model[name]) for name in _OF_MODEL if model.get(name) is not None}
    tags |= {f"dataset.{_name(name)}.sha256": str(value) for name, value in manifest.get("inputs", {}).items()}
    tags |= {f"version.{name}": str(value) for name, value in manifest.get("versions", {}).items()}
    return tags | {"schema_version": str(manifest["schema_version"]), "manifest.sha256": manifest_sha256}


def _add(
    curves: dict[int, dict[str, float]], rows: pl.DataFrame, value: str, what: str, columns: Iterable[str]
) -> None:
    names = tuple(columns)
    for row in rows.iter_rows(named=True):
        name = _name(row["dataset"], what, *(row[column] for column in names))
        curves.setdefault(int(row["layer"]), {}).update(_with_interval(name, row, value))


def _with_interval(name: str, row: Mapping[str, Any], value: str) -> dict[str, float]:
    found = {name: row[value], f"{name}.low": row["ci_low"], f"{name}.high": row["ci_high"]}
    return {key: float(one) for key, one in found.items() if isinstance(one, int | float) and isfinite(one)}


def _name(*parts: object) -> str:
    return "/".join(_LETTERS.sub("_", str(part)) for part in parts if part is not None)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield from ((folder / name, "") for name in _FILES if (folder / name).is_file())
    if (folder / "figures").is_dir():
        yield from ((path, "figures") for path in sorted((folder / "figures").iterdir()) if path.is_file())
