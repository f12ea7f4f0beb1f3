"""The end of a run: result files, figures and report, then the manifest that seals them."""

import platform
import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import polars as pl
from safetensors.torch import save_file
from torch import Tensor

from anchorscope.answers.template import FEW_SHOT
from anchorscope.datasets.catalog import parse_spec
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.shapes import MARK
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe
from anchorscope.report.findings import Findings, headline_effects
from anchorscope.report.render import write_all
from anchorscope.store import RunFolder, peak_memory_mb, replacing, sha256

_NAMED_VERSIONS = ("anchorscope", "torch", "transformers", "numpy", "polars", "scikit-learn", "safetensors")
_FURTHER = ("experiments", "experiment_items", "unavailable")


@dataclass(frozen=True)
class DatasetResult:
    """Everything that one dataset contributes to the result files."""

    name: str
    items: pl.DataFrame
    effects: pl.DataFrame
    counts: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    """curves, curve_samples, reference_curves, probe_scores, pathways, summary."""
    probes: Mapping[str, Tensor]
    reference_layers: tuple[int, ...]
    """l* of each fold at the headline place."""
    unconverged: tuple[str, ...]
    experiments: pl.DataFrame
    """Statistics of the further experiments."""
    experiment_items: pl.DataFrame
    """What they found of single items."""
    unavailable: pl.DataFrame
    """What was asked for and cannot be done on this dataset, with the reason."""


@dataclass(frozen=True)
class LeftOut:
    """A dataset that could not be measured."""

    name: str
    reason: str
    items: pl.DataFrame
    counts: pl.DataFrame


def publish(
    folder: RunFolder, identity: ModelIdentity, results: Sequence[DatasetResult], left_out: Sequence[LeftOut],
    batch_tokens: tuple[int, int], progress: Progress,
) -> None:  # fmt: skip
    """Writes the run's results, the manifest last; `batch_tokens` is what the run began and ended with."""
    out, began = folder.path, time.monotonic()
    frames = {
        "items": pl.concat([*(one.items for one in results), *(one.items for one in left_out)]),
        "effects": pl.concat([one.effects for one in results]),
        **{name: pl.concat([one.tables[name] for one in results]) for name in results[0].tables},
        **{name: pl.concat([getattr(one, name) for one in results]) for name in _FURTHER},
    }
    for name in ("items", "effects", "pathways", "curve_samples", "experiment_items"):
        with replacing(out / f"{name}.parquet") as half_made:
            frames[name].write_parquet(half_made)
    for name in ("curves", "reference_curves", "probe_scores", "summary", "experiments"):
        with replacing(out / f"{name}.csv") as half_made:
            frames[name].write_csv(half_made)
    with replacing(out / "probes.safetensors") as half_made:
        save_file({name: tensor for one in results for name, tensor in one.probes.items()}, half_made)
    counts = pl.concat([*(one.counts for one in results), *(one.counts for one in left_out)])
    warnings = _warnings(identity, results, left_out)
    steps = [_flat(record) for record in folder.records()]
    facts = _facts(folder.recipe, identity, results, warnings, batch_tokens)
    findings = _findings(folder, identity, results, frames, counts, steps, facts)
    shutil.rmtree(out / "figures", ignore_errors=True)
    write_all(findings, out, progress)
    folder.finish({
        "versions": _versions(),
        "seed": folder.recipe.seed,
        "model": asdict(identity),
        "inputs": _inputs(folder.recipe),
        "counts": counts.to_dicts(),
        "facts": facts,
        "reference_layers": {one.name: list(one.reference_layers) for one in results},
        "unavailable": frames["unavailable"].to_dicts(),
        "batch_tokens": {"asked": batch_tokens[0], "final": batch_tokens[1]},
        "warnings": warnings,
        "elapsed_seconds": round(time.monotonic() - folder.opened, 3),
        "steps": [*steps, _flat(_report_step(began))],
    })  # fmt: skip


def _findings(
    folder: RunFolder, identity: ModelIdentity, results: Sequence[DatasetResult],
    frames: Mapping[str, pl.DataFrame], counts: pl.DataFrame, steps: list[dict[str, Any]], facts: Mapping[str, str],
) -> Findings:  # fmt: skip
    recipe = folder.recipe
    return Findings(
        model=identity.name,
        n_layers=identity.n_layers,
        site=recipe.site,
        position=recipe.position,
        datasets=tuple(one.name for one in results),
        items=frames["items"],
        probe_scores=frames["probe_scores"],
        curves=frames["curves"],
        pathways=frames["pathways"],
        reference_curves=frames["reference_curves"],
        summary=frames["summary"],
        experiments=frames["experiments"],
        experiment_items=frames["experiment_items"],
        curve_samples=frames["curve_samples"],
        effects=headline_effects(frames["effects"], recipe.site, recipe.position),
        unavailable=frames["unavailable"],
        counts=counts,
        reference_layers={one.name: one.reference_layers for one in results},
        facts=facts,
        command=f"anchorscope run {folder.path / 'recipe.toml'} --out NEW_FOLDER",
        steps=pl.DataFrame(steps, infer_schema_length=None).select("step", "seconds", "peak_memory_mb"),
        random_weights=identity.random_weights,
        parameters=identity.parameters,
    )


def _warnings(identity: ModelIdentity, results: Sequence[DatasetResult], left_out: Sequence[LeftOut]) -> list[str]:
    found = [f"{MARK}: {identity.name} knows nothing, its chart is noise"] if identity.random_weights else []
    found += [f"not measured: {one.reason}" for one in left_out]
    for one in results:
        for (experiment,), rows in one.unavailable.group_by("experiment", maintain_order=True):
            more = f" (and {rows.height - 1} more, see the report)" if rows.height > 1 else ""
            reason = textwrap.shorten(rows["reason"][0], 240, placeholder=" …")
            found.append(f"not available on {one.name}, {experiment}: {reason}{more}")
        found += [f"probe not converged: {name}" for name in one.unconverged]
    return found


def _facts(
    recipe: Recipe, identity: ModelIdentity, results: Sequence[DatasetResult], warnings: Sequence[str],
    batch_tokens: tuple[int, int],
) -> dict[str, str]:  # fmt: skip
    """What was run, in words, in the order in which the report shows it."""
    first, final = batch_tokens
    lowered = f", lowered to {final} when memory ran out" if final != first else ""
    examples = f"{len(FEW_SHOT)} examples" + (" as earlier turns" if recipe.prompt == "chat" else "")
    examples = "no examples" if recipe.prompt == "zero-shot" else examples
    facts = {
        "model": f"{identity.name} ({identity.architecture}, {identity.n_layers} layers, {identity.d_model} wide, "
        f"{identity.parameters / 1e6:,.0f} million parameters)",
        "weights": f"{identity.source}, fingerprint {identity.fingerprint[:16]}",
        "questions": ", ".join(recipe.datasets) + (f", at most {recipe.limit} each" if recipe.limit else ""),
        "prompt": f"{recipe.prompt}, {examples}, greedy, at most {recipe.max_new_tokens} answer tokens",
        "exact tokens": _exact_tokens(results),
        "headline": f"site {recipe.site}, position {recipe.position}, edges {recipe.edges}",
        "balance": f"true and false answers balanced by {recipe.balance}; folds and bootstrap by {recipe.group_by}",
        "statistics": f"{recipe.folds} folds, {recipe.bootstrap} bootstrap resamples, seed {recipe.seed}",
        "device": f"{identity.device}, {identity.dtype}, batches of {first} tokens{lowered}",
        "versions": ", ".join(f"{name} {version}" for name, version in _versions().items()),
    }
    if warnings:
        more = f" (and {len(warnings) - 3} more, see manifest.json)" if len(warnings) > 3 else ""
        facts["warning"] = "; ".join(warnings[:3]) + more
    return facts


def _exact_tokens(results: Sequence[DatasetResult]) -> str:
    """How many questions' key words were found in which way."""
    names = {"own": "your spans", "metadata": "the dataset's words", "rules": "rules", "model": "the model"}
    totals = {name: sum(int(one.counts[f"words_by_{name}"].sum()) for one in results) for name in names}
    return ", ".join(f"{count:,} questions by {names[name]}" for name, count in totals.items() if count)


def _inputs(recipe: Recipe) -> dict[str, str]:
    """sha256 of every question file, where it is still there."""
    paths = {spec.name: spec.path for spec in map(parse_spec, recipe.datasets)}
    return {name: sha256(path) for name, path in paths.items() if path is not None and path.is_file()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _NAMED_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _report_step(began: float) -> dict[str, Any]:
    """The last step's record: this one, nearly over."""
    return {"step": "report", "seconds": round(time.monotonic() - began, 3), "peak_memory_mb": peak_memory_mb()}


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A step's record with the larger of its memory peaks in one column."""
    peaks = record["peak_memory_mb"]
    return {"step": record["step"], "seconds": record["seconds"], "peak_memory_mb": max(peaks.values()), "peaks": peaks}
