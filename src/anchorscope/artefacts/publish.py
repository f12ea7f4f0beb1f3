"""The end of a run: result files, figures and report, put in place together; the manifest seals them."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from safetensors.torch import save_file

from anchorscope.artefacts.durable import PARTIAL, folder_beside
from anchorscope.artefacts.finished import FinishedRun
from anchorscope.artefacts.kept_states import features_place
from anchorscope.artefacts.results import DatasetResult, LeftOut, RunFacts
from anchorscope.artefacts.run_facts import facts_in_words, versions
from anchorscope.artefacts.run_folder import RESULTS, RunFolder
from anchorscope.artefacts.run_warnings import run_warnings
from anchorscope.artefacts.step import peak_memory_mb
from anchorscope.cost import REPORT
from anchorscope.progress import Progress
from anchorscope.recipe import to_toml
from anchorscope.report.render import write_all

_OF_EXPERIMENTS = ("experiments", "experiment_items", "unavailable")


def publish(
    folder: RunFolder,
    run: RunFacts,
    results: Sequence[DatasetResult],
    left_out: Sequence[LeftOut],
    key: str,
    progress: Progress,
) -> None:
    """Writes the run's results beside the old ones, reads them back for the report, and puts all in place at once."""
    progress.begin(REPORT)
    with folder_beside(folder.path / RESULTS.removesuffix(PARTIAL)) as made:
        _publish(made, folder, run, results, left_out, key, progress)
    progress.done(REPORT)


def _publish(
    made: Path,
    folder: RunFolder,
    run: RunFacts,
    results: Sequence[DatasetResult],
    left_out: Sequence[LeftOut],
    key: str,
    progress: Progress,
) -> None:
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
        "curves",
        "reference_curves",
        "probe_scores",
        "summary",
        "experiments",
        "question_share",
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
        {
            "step": name,
            "seconds": one.seconds,
            "peak_memory_mb": max(one.peak_memory_mb.values()),
            "peaks": one.peak_memory_mb,
            "key": one.key,
        }
        for name, one in folder.index.steps.items()
    ]
    counts = pl.concat([*(one.counts for one in results), *(one.counts for one in left_out)])
    manifest: dict[str, Any] = {
        "versions": versions(),
        "seed": run.recipe.seed,
        "model": {**asdict(run.identity), "files": dict(run.model_files)},
        **({} if run.template is None else {"template": asdict(run.template)}),
        "inputs": dict(run.inputs),
        "counts": counts.to_dicts(),
        "facts": facts_in_words(run, results),
        "balanced_by": {one.name: one.balanced_by for one in results},
        "grouped_by": {one.name: one.grouped_by for one in results},
        "reference_layers": {one.name: list(one.reference_layers) for one in results},
        "unavailable": frames["unavailable"].to_dicts(),
        "batch_tokens": {"asked": run.batch_tokens[0], "final": run.batch_tokens[1]},
        "warnings": [*run_warnings(run.identity, run.recipe.balance, results, left_out), *_of_mixed_workers(run)],
        "events": list(folder.index.events),
        "numerics": dict(run.numerics),
        **({} if run.workers is None else {"workers": dict(run.workers)}),
        "steps": steps,
    }
    findings = FinishedRun(made, manifest, run.recipe, folder.path).findings
    write_all(findings, made, progress, run.recipe.report)
    report = {"step": REPORT, "seconds": round(time.monotonic() - began, 3), "key": key}
    peaks = peak_memory_mb()
    manifest["steps"] = [*steps, {**report, "peak_memory_mb": max(peaks.values()), "peaks": peaks}]
    manifest["elapsed_seconds"] = round(run.seconds + time.monotonic() - began, 3)
    folder.publish(made, manifest, key)


def _of_mixed_workers(run: RunFacts) -> list[str]:
    """That not all numbers are of one numerics class, where the user allowed that."""
    others = () if run.workers is None else run.workers["other_classes"]
    return [
        f"workers of different numerics classes took part (--mixed): {'; '.join(others)}; the last digits depend on "
        f"which of them ran what"
    ] * bool(others)
