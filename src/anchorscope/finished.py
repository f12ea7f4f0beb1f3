"""A finished run, read from its folder: what `compare`, `show` and the report need, without a model and torch."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from anchorscope.artefacts.run_folder import read_manifest, run_again
from anchorscope.artefacts.schema import EVIDENCE_TEST_SCHEMA, EXPERIMENT_SCHEMA, PART_SCHEMA, UNAVAILABLE_SCHEMA
from anchorscope.artefacts.sealed_folder import Damaged, damage
from anchorscope.catalogue import LOADED
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe, named_folder, read_recipe
from anchorscope.report.answer_card import AnswerCard, answer_card, card_from_record
from anchorscope.report.checks import read
from anchorscope.report.findings import Findings, headline_effects

ANSWER = "answer.json"
"""The answer card, for programs."""
FOR_DETECTORS = "for_detectors"
"""Whether a run made only what detectors read, in its manifest."""


class _ModelFacts(BaseModel):
    name: str
    n_layers: int
    parameters: int
    random_weights: bool
    fingerprint: str
    dtype: str


class _StepFacts(BaseModel):
    step: str
    seconds: float
    peak_memory_mb: float


class _Manifest(BaseModel):
    """What readers of `manifest.json` rely on; it has more."""

    model_config = ConfigDict(strict=True)

    sha256: dict[str, str]
    model: _ModelFacts
    counts: list[dict[str, str | int]]
    steps: list[_StepFacts]
    reference_layers: dict[str, list[int]]
    unavailable: list[dict[str, str]]
    facts: dict[str, str]
    warnings: list[str]
    balanced_by: dict[str, str]
    grouped_by: dict[str, str]


@dataclass(frozen=True)
class FinishedRun:
    path: Path
    """Where the files are now."""
    manifest: dict[str, Any]
    recipe: Recipe
    home: Path | None = None
    """Where they will be, if elsewhere."""

    @property
    def is_for_detectors(self) -> bool:
        """Whether the run made only what detectors read, as `anchorscope fit` does."""
        return bool(self.manifest.get(FOR_DETECTORS))

    @cached_property
    def findings(self) -> Findings:
        if self.is_for_detectors:
            raise self._unusable_error("no tables")
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
            summary=self.csv("summary"),
            counts=pl.DataFrame(self.manifest["counts"]),
            reference_layers={name: tuple(per_fold) for name, per_fold in layers.items()},
            facts=self.manifest["facts"],
            command=self._command(),
            steps=pl.DataFrame(
                [{name: step[name] for name in _StepFacts.model_fields} for step in self.manifest["steps"]]
            ),
            random_weights=model["random_weights"],
            experiments=self.csv("experiments", EXPERIMENT_SCHEMA),
            experiment_items=self.parquet("experiment_items"),
            unavailable=pl.DataFrame(self.manifest["unavailable"], schema=UNAVAILABLE_SCHEMA),
            curve_samples=self.parquet("curve_samples"),
            effects=self._headline_effects(),
            evidence_parts=self.csv("evidence_parts", PART_SCHEMA),
            evidence_tests=self.csv("evidence_tests", EVIDENCE_TEST_SCHEMA),
            evidence_items=self.parquet("evidence_items"),
            parameters=model["parameters"],
            options=self._options if model.get("source") == LOADED else None,
            folder=str(self.home or self.path),
            supplied={row["dataset"]: row["supplied"] for row in self.manifest["counts"] if "supplied" in row},
            balanced_by=self.manifest["balanced_by"],
            grouped_by=self.manifest["grouped_by"],
            warnings=tuple(self.manifest["warnings"]),
        )

    @cached_property
    def card(self) -> AnswerCard:
        """The answer card as it was written; computed again where the run was moved or has none of this format."""
        if ANSWER in self.manifest["sha256"]:
            record = json.loads(self.place(ANSWER).read_text(encoding="utf-8"))
            if "trust" in record and Path(record["folder"]).resolve() == self.path.resolve():
                return card_from_record(record)
        return answer_card(self.findings, read(self.findings))

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings, as they were written."""
        observations: list[dict[str, Any]] = json.loads(self.place("observations.json").read_text(encoding="utf-8"))
        return observations

    def place(self, name: str) -> Path:
        """Path of a result file; a damaged one is refused. While results are being written, nothing is sealed yet."""
        expected = self.manifest.get("sha256", {}).get(name)
        wrong = None if expected is None else damage(self.path, {name: {"sha256": expected}})
        if wrong is not None:
            raise _damaged(self.path, wrong)
        return self.path / name

    def _headline_effects(self) -> pl.DataFrame:
        """Reads only those rows; the file holds every site, position and probe."""
        site, position = self.recipe.site, self.recipe.position
        return self._read("effects.parquet", lambda path: headline_effects(pl.scan_parquet(path), site, position))

    def parquet(self, name: str) -> pl.DataFrame:
        return self._read(f"{name}.parquet", pl.read_parquet)

    def csv(self, name: str, schema: Any = None) -> pl.DataFrame:
        return self._read(f"{name}.csv", partial(pl.read_csv, schema_overrides=schema, infer_schema_length=None))

    def _read(self, name: str, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        path = self.place(name)
        if not path.is_file():
            raise self._unusable_error(f"no {name}")
        try:
            return read(path)
        except pl.exceptions.PolarsError:
            raise self._unusable_error(f"a damaged {name}") from None

    @property
    def _options(self) -> dict[str, Any]:
        """The recipe's non-default options, for a call in Python."""
        return self.recipe.model_dump(exclude_defaults=True, exclude={"model", "device", "dtype"})

    def _command(self, out: str = "NEW_FOLDER") -> str:
        """What repeats the run; a model that was given in memory can only be passed in Python."""
        if self.manifest.get("model", {}).get("source") == LOADED:
            options = "".join(f", {name}={value!r}" for name, value in self._options.items())
            return f"anchorscope.run(model, tokenizer=tokenizer, out={out!r}{options})"
        recipe = shlex.quote(str((self.home or self.path) / "recipe.toml"))
        return f"anchorscope run {recipe} --out {shlex.quote(out)}"

    def _unusable_error(self, what: str) -> UserError:
        if self.is_for_detectors:
            complete = self._command(str(self.path))
            return UserError(f"The run {str(self.path)!r} holds only what detectors read. Complete it with: {complete}")
        return UserError(f"The run {str(self.path)!r} has {what}. Repeat it with: {self._command()}")


def open_finished(path: Path, checked: bool = True) -> FinishedRun:
    """The run in a folder; anything else, and a damaged run, is refused.

    Without `checked`, files are checked when they are read, not all at once: for a run just written, or a list of many.
    """
    path = named_folder(path)
    manifest = read_manifest(path)
    _refuse_unusable(path, manifest)
    names = manifest["sha256"] if checked else ("recipe.toml",)
    wrong = damage(path, {name: {"sha256": manifest["sha256"][name]} for name in names})
    if wrong is not None:
        raise _damaged(path, wrong)
    return FinishedRun(path, manifest, make_recipe(read_recipe(path / "recipe.toml")))


def _refuse_unusable(path: Path, manifest: dict[str, Any]) -> None:
    """Refuses a manifest with values of wrong types."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        wrong = f"its manifest.json has {where}: {first['msg'].lower()}"
        raise Damaged(f"{str(path)!r} is not a finished run ({wrong}). {run_again(path)}") from None


def _damaged(path: Path, wrong: str) -> Damaged:
    return Damaged(f"The run {str(path)!r} is damaged: {wrong}. {run_again(path)}")
