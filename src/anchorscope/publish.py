"""The end of a run: result files, figures and report, then the manifest that seals them."""

import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import polars as pl
from safetensors.torch import save_file
from torch import Tensor

from anchorscope.answers.prompt import FEW_SHOT
from anchorscope.datasets.catalog import parse_spec
from anchorscope.models.language_model import ModelIdentity
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe
from anchorscope.report.findings import Findings
from anchorscope.report.render import write_all
from anchorscope.store import RunFolder, replacing, sha256

_NAMED_VERSIONS = ("anchorscope", "torch", "transformers", "numpy", "polars", "scikit-learn", "safetensors")


@dataclass(frozen=True)
class DatasetResult:
    """Everything that one dataset contributes to the result files."""

    name: str
    items: pl.DataFrame
    effects: pl.DataFrame
    counts: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    """curves, reference_curves, probe_scores, pathways, summary."""
    probes: Mapping[str, Tensor]
    reference_layers: tuple[int, ...]
    """l* of each fold at the headline place."""
    unconverged: tuple[str, ...]


def publish(folder: RunFolder, identity: ModelIdentity, results: Sequence[DatasetResult], progress: Progress) -> None:
    """Writes the run's results, the manifest last."""
    out = folder.path
    frames = {
        "items": pl.concat([one.items for one in results]),
        "effects": pl.concat([one.effects for one in results]),
        **{name: pl.concat([one.tables[name] for one in results]) for name in results[0].tables},
    }
    for name in ("items", "effects", "pathways"):
        with replacing(out / f"{name}.parquet") as half_made:
            frames[name].write_parquet(half_made)
    for name in ("curves", "reference_curves", "probe_scores", "summary"):
        with replacing(out / f"{name}.csv") as half_made:
            frames[name].write_csv(half_made)
    with replacing(out / "probes.safetensors") as half_made:
        save_file({name: tensor for one in results for name, tensor in one.probes.items()}, half_made)
    counts = pl.concat([one.counts for one in results])
    steps = [_flat(record) for record in folder.records()]
    findings = _findings(folder, identity, results, frames, counts, steps)
    shutil.rmtree(out / "figures", ignore_errors=True)
    write_all(findings, out, progress)
    folder.finish({
        "versions": _versions(),
        "seed": folder.recipe.seed,
        "model": asdict(identity),
        "inputs": _inputs(folder.recipe),
        "counts": counts.to_dicts(),
        "reference_layers": {one.name: list(one.reference_layers) for one in results},
        "warnings": [f"probe not converged: {name}" for one in results for name in one.unconverged],
        "steps": steps,
    })  # fmt: skip


def _findings(
    folder: RunFolder, identity: ModelIdentity, results: Sequence[DatasetResult],
    frames: Mapping[str, pl.DataFrame], counts: pl.DataFrame, steps: list[dict[str, Any]],
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
        counts=counts,
        reference_layers={one.name: one.reference_layers for one in results},
        facts=_facts(recipe, identity, results),
        command=f"anchorscope run {folder.path / 'recipe.toml'} --out NEW_FOLDER",
        steps=pl.DataFrame(steps, infer_schema_length=None).select("step", "seconds", "peak_memory_mb"),
    )


def _facts(recipe: Recipe, identity: ModelIdentity, results: Sequence[DatasetResult]) -> dict[str, str]:
    """What was run, in words, in the order in which the report shows it."""
    unconverged = [name for one in results for name in one.unconverged]
    facts = {
        "model": f"{identity.name} ({identity.architecture}, {identity.n_layers} layers, {identity.d_model} wide, "
        f"{identity.parameters / 1e6:,.0f} million parameters)",
        "weights": f"{identity.source}, fingerprint {identity.fingerprint[:16]}",
        "questions": ", ".join(recipe.datasets) + (f", at most {recipe.limit} each" if recipe.limit else ""),
        "prompt": f"{recipe.prompt}, {len(FEW_SHOT)} examples, greedy, at most {recipe.max_new_tokens} answer tokens",
        "headline": f"site {recipe.site}, position {recipe.position}, edges {recipe.edges}",
        "balance": f"true and false answers balanced by {recipe.balance}; folds and bootstrap by {recipe.group_by}",
        "statistics": f"{recipe.folds} folds, {recipe.bootstrap} bootstrap resamples, seed {recipe.seed}",
        "device": f"{identity.device}, {identity.dtype}, batches of {recipe.batch_tokens} tokens",
        "versions": ", ".join(f"{name} {version}" for name, version in _versions().items()),
    }
    if unconverged:
        facts["warning"] = f"{len(unconverged)} probes did not converge, the first: {unconverged[0]}"
    return facts


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


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A step's record with the larger of its memory peaks in one column."""
    peaks = record["peak_memory_mb"]
    return {"step": record["step"], "seconds": record["seconds"], "peak_memory_mb": max(peaks.values()), "peaks": peaks}
