"""A finished run, read back from its folder: what `compare`, `show` and the report need, without a model and torch."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.durable import canonical_hash, sha256
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.report.answer_card import AnswerCard, answer_card, card_from_record
from anchorscope.report.findings import Findings, headline_effects
from anchorscope.report.statements import read
from anchorscope.schema import (
    EXPERIMENT_SCHEMA,
    SCHEMA_VERSION,
    SHARE_SCHEMA,
    SHARE_TEST_SCHEMA,
    UNAVAILABLE_SCHEMA,
    empty,
)

ANSWER = "answer.json"
"""The answer card, for programs."""


@dataclass(frozen=True)
class FinishedRun:
    """The result files of one run."""

    path: Path
    """Where the files are."""
    manifest: dict[str, Any]
    recipe: Recipe
    home: Path | None = None
    """Where they will be, if that is elsewhere."""

    @cached_property
    def findings(self) -> Findings:
        """Everything that the report of this run is made from."""
        model, recipe = self.manifest["model"], self.recipe
        layers = self.manifest["reference_layers"]
        return Findings(
            model=model["name"],
            n_layers=model["n_layers"],
            site=recipe.site,
            position=recipe.position,
            datasets=tuple(layers),
            items=self.parquet("items"),
            probe_scores=self.csv("probe_scores"),
            curves=self.csv("curves"),
            pathways=self.parquet("pathways"),
            reference_curves=self.csv("reference_curves"),
            summary=self.csv("summary"),
            counts=pl.DataFrame(self.manifest["counts"]),
            reference_layers={name: tuple(found) for name, found in layers.items()},
            facts=self.manifest.get("facts", {}),
            command=self._again,
            steps=pl.DataFrame(self.manifest["steps"]).select("step", "seconds", "peak_memory_mb"),
            random_weights=model["random_weights"],
            experiments=self.csv("experiments", EXPERIMENT_SCHEMA),
            experiment_items=self.parquet("experiment_items"),
            unavailable=pl.DataFrame(self.manifest["unavailable"], schema=UNAVAILABLE_SCHEMA),
            curve_samples=self.parquet("curve_samples"),
            effects=self._headline_effects(),
            question_share=self.csv_where_made("question_share", SHARE_SCHEMA),
            question_share_tests=self.csv_where_made("question_share_tests", SHARE_TEST_SCHEMA),
            parameters=model["parameters"],
            folder=str(self.home or self.path),
            supplied={row["dataset"]: row["supplied"] for row in self.manifest["counts"] if "supplied" in row},
            balanced_by=self.manifest.get("balanced_by", {}),  # older runs did not write down what happened
            grouped_by=self.manifest.get("grouped_by", {}),
            warnings=tuple(self.manifest.get("warnings", ())),
        )

    @cached_property
    def card(self) -> AnswerCard:
        """The answer card: as it was written, or of the tables where the run is older than cards are."""
        place = self.path / ANSWER
        if place.is_file():
            return card_from_record(json.loads(place.read_text(encoding="utf-8")))
        return answer_card(self.findings, read(self.findings))

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings, as they were written."""
        found: list[dict[str, Any]] = json.loads((self.path / "observations.json").read_text(encoding="utf-8"))
        return found

    def _headline_effects(self) -> pl.DataFrame:
        """Only those rows are read from the file; it holds every site, position and probe."""
        site, position = self.recipe.site, self.recipe.position
        return self._read("effects.parquet", lambda place: headline_effects(pl.scan_parquet(place), site, position))

    def parquet(self, name: str) -> pl.DataFrame:
        """A table of the folder."""
        return self._read(f"{name}.parquet", pl.read_parquet)

    def csv(self, name: str, schema: Any = None) -> pl.DataFrame:
        """A table of the folder that was written as text."""
        return self._read(f"{name}.csv", lambda place: pl.read_csv(place, schema=schema, infer_schema_length=None))

    def csv_where_made(self, name: str, schema: Any) -> pl.DataFrame:
        """A table that older runs do not have: then it is empty."""
        return self.csv(name, schema) if (self.path / f"{name}.csv").is_file() else empty(schema)

    def _read(self, name: str, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        place = self.path / name
        if not place.is_file():
            raise self._unusable(f"no {name}: it was made by an older version, or the file was taken away")
        try:
            return read(place)
        except pl.exceptions.PolarsError:
            raise self._unusable(f"a damaged {name}") from None

    @property
    def _again(self) -> str:
        return f"anchorscope run {(self.home or self.path) / 'recipe.toml'} --out NEW_FOLDER"

    def _unusable(self, what: str) -> UserError:
        return UserError(f"The run {str(self.path)!r} has {what}. Repeat it with: {self._again}")


def open_finished(path: Path, checked: bool = True) -> FinishedRun:
    """The run in a folder; anything else is refused, and so is a run whose files are not what was written.

    Only who has just written it, or shows a list of many, does without the check: it reads every file.
    """
    manifest = read_manifest(path)
    wrong = _damage(path, manifest["sha256"]) if checked else None
    if wrong is not None:
        raise UserError(
            f"The run {str(path)!r} is damaged: {wrong}. The command that made it writes its results again from the "
            f"steps that it kept (a changed file is moved aside): anchorscope run {path / 'recipe.toml'} --out {path}"
        )
    return FinishedRun(path, manifest, make_recipe(read_recipe(path / "recipe.toml")))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished run, whole and of a version that is understood."""
    try:
        found = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{str(path)!r} is not a finished run (no manifest.json); run it to its end first.") from None
    except (OSError, ValueError):
        raise UserError(
            f"{str(path)!r} is not a finished run (its manifest.json is damaged); the command that made the run "
            f"writes it again."
        ) from None
    if not isinstance(found, dict) or "recipe.toml" not in found.get("sha256", ()):
        raise UserError(f"{str(path)!r} is not a finished run of anchorscope (manifest.json is of something else).")
    version = found.get("schema_version", 1)  # the first had no number
    if version > SCHEMA_VERSION:
        raise UserError(
            f"The run {str(path)!r} was written by a newer version of anchorscope (format {version}, this one reads up "
            f"to {SCHEMA_VERSION}); update anchorscope to read it."
        )
    if version > 1 and found.pop("seal", None) != canonical_hash(found):
        raise UserError(
            f"{str(path)!r} is not a finished run (its manifest.json was changed); the command that made the run "
            f"writes it again."
        )
    return found


def _damage(path: Path, hashes: dict[str, str]) -> str | None:
    """The first result file that is missing or not what was written; None if all are whole."""
    for name, known in hashes.items():
        if not (path / name).is_file():
            return f"{name} is missing"
        if sha256(path / name) != known:
            return f"{name} was changed after it was written"
    return None
