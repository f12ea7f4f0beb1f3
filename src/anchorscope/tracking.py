"""Finished runs in experiment trackers: MLflow, Weights & Biases."""

import importlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.schema import BAND
from anchorscope.errors import UserError, faults_as_user_errors, unknown
from anchorscope.files import sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.recipe import named_folder

_SUMMARY = ("quantity", "intervention", "group", "site", "position")
_FILES = (
    "report.html",
    "report.md",
    "recipe.toml",
    "manifest.json",
    "answer.json",
    "observations.json",
)
_TABLES = (
    "summary",
    "probe_scores",
    "curves",
    "evidence_parts",
    "evidence_tests",
    "experiments",
)
_OF_MODEL = (
    "name",
    "source",
    "fingerprint",
    "tokenizer",
    "n_layers",
    "dtype",
    "device",
)
_LETTERS = re.compile(
    r"[^\w\-. /]"
)  # what names may not have in one tracker or another


@faults_as_user_errors()
def log_run(
    run: Any,
    to: str,
    *,
    project: str = "anchorscope",
    name: str | None = None,
    **options: Any,
) -> str:
    """Logs a finished run, `Run` or its folder, and returns the tracker's id of it.

    The recipe becomes parameters; model, question files and versions tags; numbers of the summary metrics, each with
    its interval (NAME.low, NAME.high); curves metrics whose steps are layers; tables, figures and report files.
    `project` is MLflow's experiment; `options` are the library's own: `tracking_uri` for MLflow; `mode`, `entity`,
    `dir`, `group` for W&B.
    """
    if to not in TRACKERS:
        raise unknown("tracker", to, TRACKERS)
    log, allowed = TRACKERS[to]
    for option in options:
        if option not in allowed:
            raise unknown(
                f"option of log_run to {to}", option, ("project", "name", *allowed)
            )
    records = records_of(open_finished(named_folder(getattr(run, "path", run))))
    try:
        library = importlib.import_module(to)
    except ImportError as error:
        raise UserError(
            f"{to} cannot be imported ({error}); pip install {to}, in this environment."
        ) from None
    try:
        return str(log(library, records, project, name or records.name, **options))
    except (
        Exception
    ) as error:  # each library, its transport and its server have errors of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{to} did not take the whole run ({reason}); delete it there, and log it again."
        ) from error


@dataclass(frozen=True)
class RunRecords:
    name: str
    parameters: dict[str, str]
    tags: dict[str, str]
    """Model, weights, question files, versions."""
    metrics: dict[str, float]
    """Single numbers, each with the ends of its interval."""
    curves: dict[int, dict[str, float]]
    files: list[tuple[Path, str]]
    """Each with the folder that it goes into."""


def records_of(run: FinishedRun) -> RunRecords:
    scores, curves = run.csv("probe_scores"), run.csv("curves")
    shares = run.csv("evidence_parts")
    metrics: dict[str, float] = {}
    for row in run.csv("summary").iter_rows(named=True):
        metrics |= _add_interval(
            _metric_name(row["dataset"], *(row[column] for column in _SUMMARY)),
            row,
            "value",
        )
    for row in scores.filter(pl.col("layer").is_null()).iter_rows(named=True):
        metrics |= _add_interval(
            _metric_name(row["dataset"], "auc", row["kind"], row["intervention"]),
            row,
            "auc",
        )
    headline = (pl.col("site") == run.recipe.site) & (
        pl.col("position") == run.recipe.position
    )
    in_layer = pl.col("layer").is_not_null() & headline
    all_answers = in_layer & (pl.col("truth") == "all")
    by_layer: dict[int, dict[str, float]] = {}
    for rows, value, title, columns in (
        (scores.filter(in_layer), "auc", "auc by layer", ("kind", "intervention")),
        (
            curves.filter(all_answers),
            "delta_p",
            "delta_p",
            ("intervention", "variant", "group"),
        ),
        (
            shares.filter(headline & (pl.col("layer") != BAND)),
            "share",
            "evidence",
            ("intervention", "part"),
        ),
    ):
        for row in rows.iter_rows(named=True):
            name = _metric_name(
                row["dataset"], title, *(row[column] for column in columns)
            )
            by_layer.setdefault(int(row["layer"]), {}).update(
                _add_interval(name, row, value)
            )
    files = [(run.path / name, "") for name in _FILES]
    files += [(run.path / f"{name}.csv", "tables") for name in _TABLES]
    files += [(path, "figures") for path in sorted((run.path / "figures").glob("*"))]
    return RunRecords(
        run.path.name,
        {
            name: ",".join(map(str, value))
            if isinstance(value, list | tuple)
            else str(value)
            for name, value in run.recipe.model_dump().items()
        },
        tags_of(run.manifest, sha256(run.path / "manifest.json")),
        metrics,
        dict(sorted(by_layer.items())),
        [(path, folder) for path, folder in files if path.is_file()],
    )


def tags_of(manifest: Mapping[str, Any], manifest_sha256: str) -> dict[str, str]:
    """The model and the question files with their fingerprints, and versions."""
    model = manifest["model"]
    tags = {
        f"model.{name}": str(model[name])
        for name in _OF_MODEL
        if model.get(name) is not None
    }
    tags |= {
        f"dataset.{_metric_name(name)}.sha256": str(value)
        for name, value in manifest.get("inputs", {}).items()
    }
    tags |= {
        f"version.{name}": str(value)
        for name, value in manifest.get("versions", {}).items()
    }
    return tags | {
        "schema_version": str(manifest["schema_version"]),
        "manifest.sha256": manifest_sha256,
    }


def _add_interval(name: str, row: Mapping[str, Any], value: str) -> dict[str, float]:
    numbers = {
        name: row[value],
        f"{name}.low": row["ci_low"],
        f"{name}.high": row["ci_high"],
    }
    return {
        key: float(number)
        for key, number in numbers.items()
        if isinstance(number, int | float) and isfinite(number)
    }


def _metric_name(*parts: object) -> str:
    return "/".join(_LETTERS.sub("_", str(part)) for part in parts if part is not None)


def _to_mlflow(
    library: Any,
    records: RunRecords,
    project: str,
    name: str,
    tracking_uri: str | None = None,
) -> str:
    """Through its client, so that the caller's open run is left alone."""
    client, entities, now = (
        library.MlflowClient(tracking_uri=tracking_uri),
        library.entities,
        int(time.time() * 1000),
    )
    existing = client.get_experiment_by_name(project)
    experiment = (
        client.create_experiment(project)
        if existing is None
        else existing.experiment_id
    )
    run, status = (
        str(client.create_run(experiment, run_name=name).info.run_id),
        "FAILED",
    )
    steps = [(0, records.metrics), *records.curves.items()]
    batches = {  # MLflow's limits: letters of a text, and how much one request takes
        "tags": (
            [entities.RunTag(key, value[:5000]) for key, value in records.tags.items()],
            100,
        ),
        "params": (
            [
                entities.Param(key, value[:6000])
                for key, value in records.parameters.items()
            ],
            100,
        ),
        "metrics": (
            [
                entities.Metric(key, value, now, step)
                for step, numbers in steps
                for key, value in numbers.items()
            ],
            1000,
        ),
    }
    try:
        for kind, (values, size) in batches.items():
            for start in range(0, len(values), size):
                client.log_batch(run, **{kind: values[start : start + size]})
        for path, folder in records.files:
            client.log_artifact(run, str(path), folder or None)
        status = "FINISHED"
    finally:
        client.set_terminated(run, status)
    return run


def _to_wandb(
    library: Any, records: RunRecords, project: str, name: str, **options: Any
) -> str:
    """Numbers in its summary, curves with the layer as their axis, files as an artefact."""
    settings = library.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
    )
    config = {"recipe": records.parameters, "made_of": records.tags}
    start = {
        "project": project,
        "name": name,
        "config": config,
        "job_type": "anchorscope",
        "settings": settings,
    }
    run, code = library.init(**start, reinit="create_new", **options), 1
    try:
        run.define_metric("layer")
        for key in sorted(
            {key for numbers in records.curves.values() for key in numbers}
        ):
            run.define_metric(key, step_metric="layer", summary="none")
        for layer, numbers in records.curves.items():
            run.log({"layer": layer, **numbers})
        run.summary.update(records.metrics)
        artefact = library.Artifact(
            f"run-{run.id}", type="anchorscope-run", metadata=records.tags
        )
        for path, folder in records.files:
            artefact.add_file(
                str(path), name=f"{folder}/{path.name}" if folder else path.name
            )
        run.log_artifact(artefact)
        code = 0
    finally:
        run.finish(exit_code=code)
    return str(run.id)


TRACKERS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "mlflow": (_to_mlflow, ("tracking_uri",)),
    "wandb": (_to_wandb, ("mode", "entity", "dir", "group")),
}
"""By the library's name, with the options that `log_run` passes on."""
