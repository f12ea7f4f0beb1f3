"""A finished run, read back from its folder: what `compare`, `show` and the report need, without a model and torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.report.findings import EXPERIMENT_SCHEMA, UNAVAILABLE_SCHEMA, Findings, headline_effects
from anchorscope.store import read_manifest


@dataclass(frozen=True)
class FinishedRun:
    """One run folder."""

    path: Path
    manifest: dict[str, Any]
    recipe: Recipe

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
            command=f"anchorscope run {self.path / 'recipe.toml'} --out NEW_FOLDER",
            steps=pl.DataFrame(self.manifest["steps"]).select("step", "seconds", "peak_memory_mb"),
            random_weights=model["random_weights"],
            experiments=self.csv("experiments", EXPERIMENT_SCHEMA),
            experiment_items=self.parquet("experiment_items"),
            unavailable=pl.DataFrame(self.manifest["unavailable"], schema=UNAVAILABLE_SCHEMA),
            curve_samples=self.parquet("curve_samples"),
            effects=self._headline_effects(),
            parameters=model["parameters"],
        )

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

    def _read(self, name: str, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        place = self.path / name
        if not place.is_file():
            raise self._unusable(f"no {name}: it was made by an older version, or the file was taken away")
        try:
            return read(place)
        except pl.exceptions.PolarsError:
            raise self._unusable(f"a damaged {name}") from None

    def _unusable(self, what: str) -> UserError:
        again = f"anchorscope run {self.path / 'recipe.toml'} --out NEW_FOLDER"
        return UserError(f"The run {str(self.path)!r} has {what}. Repeat it with: {again}")


def open_finished(path: Path) -> FinishedRun:
    """The run in a folder; anything else is refused."""
    manifest = read_manifest(path)
    return FinishedRun(path, manifest, make_recipe(read_recipe(path / "recipe.toml")))
