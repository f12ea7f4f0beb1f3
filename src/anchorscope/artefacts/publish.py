"""The end of a run: result files, figures and report, put in place together; the manifest seals them."""

import platform
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
from safetensors.torch import save_file
from torch import Tensor

from anchorscope.answers.template import FEW_SHOT, Template
from anchorscope.artefacts.durable import PARTIAL, folder_beside
from anchorscope.artefacts.finished import FinishedRun
from anchorscope.artefacts.kept_states import KeptStates, features_place
from anchorscope.artefacts.run_folder import RESULTS, RunFolder
from anchorscope.artefacts.step import peak_memory_mb
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.shapes import MARK
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe, to_toml
from anchorscope.report.render import write_all

_NAMED_VERSIONS = ("anchorscope", "torch", "transformers", "numpy", "polars", "scikit-learn", "safetensors")
REPORT = "report"
"""The last step: result files, figures and the page."""
_OF_EXPERIMENTS = ("experiments", "experiment_items", "unavailable")


@dataclass(frozen=True)
class DatasetResult:
    """Everything that one dataset contributes to the result files."""

    name: str
    items: pl.DataFrame
    effects: pl.DataFrame
    counts: pl.DataFrame
    tables: Mapping[str, pl.DataFrame]
    """curves, curve_samples, reference_curves, probe_scores, pathways, summary, question_share with items and tests."""
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
    kept: Sequence[KeptStates] = ()
    """States that are kept."""
    features: pl.DataFrame | None = None
    """What detectors read beside them, where it is kept."""
    notes: tuple[str, ...] = ()
    """What happened on the way: where memory ran out while probes were fitted."""


@dataclass(frozen=True)
class LeftOut:
    """A dataset that could not be measured."""

    name: str
    reason: str
    items: pl.DataFrame
    counts: pl.DataFrame


@dataclass(frozen=True)
class RunFacts:
    """What the manifest says of a run beside its results."""

    identity: ModelIdentity
    recipe: Recipe
    inputs: Mapping[str, str]
    """sha256 of every question file, as it was when it was read."""
    batch_tokens: tuple[int, int]
    """What the run began and ended with."""
    seconds: float
    """Since the command began."""
    template: Template | None = None
    """The text around every question, where states are kept."""


def publish(
    folder: RunFolder, run: RunFacts, results: Sequence[DatasetResult], left_out: Sequence[LeftOut], key: str,
    progress: Progress,
) -> None:  # fmt: skip
    """Writes the run's results beside the old ones, reads them back for the report, and puts all in place at once."""
    progress.begin(REPORT)
    with folder_beside(folder.path / RESULTS.removesuffix(PARTIAL)) as made:
        _publish(made, folder, run, results, left_out, key, progress)
    progress.done(REPORT)


def _publish(
    made: Path, folder: RunFolder, run: RunFacts, results: Sequence[DatasetResult], left_out: Sequence[LeftOut],
    key: str, progress: Progress,
) -> None:  # fmt: skip
    began = time.monotonic()
    frames = {
        "items": pl.concat([*(one.items for one in results), *(one.items for one in left_out)]),
        "effects": pl.concat([one.effects for one in results]),
        **{name: pl.concat([one.tables[name] for one in results]) for name in results[0].tables},
        **{name: pl.concat([getattr(one, name) for one in results]) for name in _OF_EXPERIMENTS},
    }
    for name in ("items", "effects", "pathways", "curve_samples", "experiment_items", "question_share_items"):
        frames[name].write_parquet(made / f"{name}.parquet")
    for name in (
        "curves", "reference_curves", "probe_scores", "summary", "experiments", "question_share",
        "question_share_tests",
    ):
        frames[name].write_csv(made / f"{name}.csv")
    save_file({name: tensor for one in results for name, tensor in one.probes.items()}, made / "probes.safetensors")
    for kept in (kept for one in results for kept in one.kept):
        kept.write(made)
    for one in results:
        if one.features is not None:
            place = made / features_place(one.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            one.features.write_parquet(place)
    (made / "recipe.toml").write_text(to_toml(run.recipe), encoding="utf-8")
    steps = [
        {"step": name, "seconds": one.seconds, "peak_memory_mb": max(one.peak_memory_mb.values()),
         "peaks": one.peak_memory_mb, "key": one.key}
        for name, one in folder.index.steps.items()
    ]  # fmt: skip
    warnings = _warnings(run.identity, results, left_out)
    counts = pl.concat([*(one.counts for one in results), *(one.counts for one in left_out)])
    manifest: dict[str, Any] = {
        "versions": versions(),
        "seed": run.recipe.seed,
        "model": asdict(run.identity),
        **({} if run.template is None else {"template": asdict(run.template)}),
        "inputs": dict(run.inputs),
        "counts": counts.to_dicts(),
        "facts": _facts(run, results, warnings),
        "reference_layers": {one.name: list(one.reference_layers) for one in results},
        "unavailable": frames["unavailable"].to_dicts(),
        "batch_tokens": {"asked": run.batch_tokens[0], "final": run.batch_tokens[1]},
        "warnings": warnings,
        "events": list(folder.index.events),
        "steps": steps,
    }
    write_all(FinishedRun(made, manifest, run.recipe, folder.path).findings, made, progress)
    report = {"step": REPORT, "seconds": round(time.monotonic() - began, 3), "key": key}
    peaks = peak_memory_mb()
    manifest["steps"] = [*steps, {**report, "peak_memory_mb": max(peaks.values()), "peaks": peaks}]
    manifest["elapsed_seconds"] = round(run.seconds + time.monotonic() - began, 3)
    folder.publish(made, manifest, key)


def _warnings(identity: ModelIdentity, results: Sequence[DatasetResult], left_out: Sequence[LeftOut]) -> list[str]:
    found = [f"{MARK}: {identity.name} knows nothing, its chart is noise"] if identity.random_weights else []
    found += [f"not measured: {one.reason}" for one in left_out]
    for one in results:
        for (experiment,), rows in one.unavailable.group_by("experiment", maintain_order=True):
            more = f" (and {rows.height - 1} more, see the report)" if rows.height > 1 else ""
            reason = textwrap.shorten(rows["reason"][0], 240, placeholder=" …")
            found.append(f"not available on {one.name}, {experiment}: {reason}{more}")
        found += [f"probe not converged: {name}" for name in one.unconverged]
        found += one.notes
    return found


def _facts(run: RunFacts, results: Sequence[DatasetResult], warnings: Sequence[str]) -> dict[str, str]:
    """What was run, in words, in the order in which the report shows it."""
    recipe, identity, (first, final) = run.recipe, run.identity, run.batch_tokens
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
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
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


def versions() -> dict[str, str]:
    """Versions of what computes."""
    found = {"python": platform.python_version()}
    for name in _NAMED_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found
