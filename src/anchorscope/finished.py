"""A finished run, read from its folder: what `compare`, `show` and the report need, without a model and torch."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.run_folder import read_manifest, run_again
from anchorscope.artefacts.schema import UNAVAILABLE_SCHEMA
from anchorscope.artefacts.sealed_folder import Damaged, damage
from anchorscope.artefacts.tables import SCHEMAS, check_table
from anchorscope.catalogue import LOADED
from anchorscope.errors import UserError
from anchorscope.json_text import from_json
from anchorscope.recipe import Recipe, make_recipe, named_folder, read_recipe
from anchorscope.report.answer_card import AnswerCard, answer_card
from anchorscope.report.checks import read
from anchorscope.report.findings import Findings, headline_effects

FOR_DETECTORS = "for_detectors"
"""Whether a run made only what detectors read, in its manifest."""


@dataclass(frozen=True, eq=False)
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
        needed = ("model", "counts", "reference_layers", "unavailable")
        missing = [name for name in needed if name not in self.manifest]
        if missing:
            raise self._unusable_error(f"no {missing[0]} in its manifest.json")
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
            reference_layers={
                name: tuple(per_fold) for name, per_fold in layers.items()
            },
            facts=self.manifest.get("facts", {}),
            command=self._command(),
            random_weights=model["random_weights"],
            experiments=self.csv("experiments"),
            experiment_items=self.parquet("experiment_items"),
            unavailable=pl.DataFrame(
                self.manifest["unavailable"], schema=UNAVAILABLE_SCHEMA
            ),
            curve_samples=self.parquet("curve_samples"),
            effects=self._read(  # the file holds every site and position
                "effects.parquet",
                lambda path: headline_effects(
                    pl.scan_parquet(path), recipe.site, recipe.position
                ),
            ),
            evidence_parts=self.csv("evidence_parts"),
            evidence_tests=self.csv("evidence_tests"),
            evidence_items=self.parquet("evidence_items"),
            parameters=model["parameters"],
            options=self._options if model.get("source") == LOADED else None,
            folder=str(self.home or self.path),
            warnings=tuple(self.manifest.get("warnings", ())),
        )

    @cached_property
    def card(self) -> AnswerCard:
        """The findings, how far to believe them, and what to do next, with commands for where the run is now."""
        return answer_card(self.findings, read(self.findings))

    @cached_property
    def observations(self) -> list[dict[str, Any]]:
        """The readings as written: what the curves do, in words, each with its number, interval and verdict."""
        observations: list[dict[str, Any]] = from_json(
            self.checked_file("observations.json").read_bytes()
        )
        return observations

    def checked_file(self, name: str) -> Path:
        """Path of a result file; a damaged one is refused. While results are being written, nothing is sealed yet."""
        expected = self.manifest.get("sha256", {}).get(name)
        wrong = (
            None
            if expected is None
            else damage(self.path, {name: {"sha256": expected}})
        )
        if wrong is not None:
            raise _damaged(self.path, wrong)
        return self.path / name

    def parquet(self, name: str) -> pl.DataFrame:
        return self._read(f"{name}.parquet", pl.read_parquet)

    def csv(self, name: str) -> pl.DataFrame:
        def read(path: Path) -> pl.DataFrame:
            return pl.read_csv(
                path, schema_overrides=SCHEMAS[name], infer_schema_length=None
            )

        return self._read(f"{name}.csv", read)

    def _read(self, name: str, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        path = self.checked_file(name)
        if not path.is_file():
            raise self._unusable_error(f"no {name}: the file was taken away")
        try:
            table = read(path)
            if path.stem in SCHEMAS:
                check_table(path.stem, table, self.manifest["model"]["n_layers"])
            return table
        except pl.exceptions.PolarsError:
            raise self._unusable_error(f"a damaged {name}") from None
        except ValueError as error:
            raise self._unusable_error(f"{error} ({name})") from None

    @property
    def _options(self) -> dict[str, Any]:
        """The recipe's non-default options, for a call in Python."""
        return self.recipe.model_dump(
            exclude_defaults=True, exclude={"model", "device", "dtype"}
        )

    def _command(self, out: str = "NEW_FOLDER") -> str:
        """What repeats the run; a model that was given in memory can only be passed in Python."""
        if self.manifest.get("model", {}).get("source") == LOADED:
            options = "".join(
                f", {name}={value!r}" for name, value in self._options.items()
            )
            return f"anchorscope.run(model, tokenizer=tokenizer, out={out!r}{options})"
        recipe = shlex.quote(str((self.home or self.path) / "recipe.toml"))
        return f"anchorscope run {recipe} --out {shlex.quote(out)}"

    def _unusable_error(self, what: str) -> UserError:
        if self.is_for_detectors:
            complete = self._command(str(self.path))
            return UserError(
                f"The run {str(self.path)!r} holds only what detectors read. Complete it with: {complete}"
            )
        return UserError(
            f"The run {str(self.path)!r} has {what}. Repeat it with: {self._command()}"
        )


def open_finished(path: Path, checked: bool = True) -> FinishedRun:
    """The run in a folder; anything else, and a damaged run, is refused.

    Without `checked`, files are checked when they are read, not all at once: for a run just written, or a list of many.
    """
    path = named_folder(path)
    manifest = read_manifest(path)
    names = manifest["sha256"] if checked else ("recipe.toml",)
    wrong = damage(path, {name: {"sha256": manifest["sha256"][name]} for name in names})
    if wrong is not None:
        raise _damaged(path, wrong)
    options = read_recipe(path / "recipe.toml")
    return FinishedRun(path, manifest, make_recipe(options))


def _damaged(path: Path, wrong: str) -> Damaged:
    return Damaged(f"The run {str(path)!r} is damaged: {wrong}. {run_again(path)}")
