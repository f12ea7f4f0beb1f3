"""Finished runs in the experiment trackers that people already have: MLflow, Weights & Biases, Trackio.

`anchorscope.log_run(run, to="mlflow")` reads a finished run into plain data (parameters, tags, numbers, curves over
layers, files) and hands that to the tracker. Every number goes with its interval: NAME, NAME.low, NAME.high. A curve's
steps are the layers.
"""

import contextlib
import importlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from shutil import copyfile
from typing import Any

import polars as pl

from anchorscope.errors import UserError, faults_as_user_errors, unknown
from anchorscope.files import sha256
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.recipe import named_folder
from anchorscope.schema import SHARE_SCHEMA

_SUMMARY = ("quantity", "intervention", "assignment", "group", "site", "position")
_FILES = ("report.html", "report.md", "recipe.toml", "manifest.json", "answer.json", "observations.json")
_TABLES = ("summary", "probe_scores", "curves", "question_share", "question_share_tests", "experiments")
_OF_MODEL = ("name", "source", "fingerprint", "tokenizer", "n_layers", "dtype", "device")
_LETTERS = re.compile(r"[^\w\-. /]")  # what names may not have in one tracker or another
_METRICS_AT_ONCE, _OTHERS_AT_ONCE = 1000, 100  # what MLflow takes in one request
_LONGEST_PARAMETER, _LONGEST_TAG = 6000, 5000  # letters, in MLflow


@faults_as_user_errors()
def log_run(run: Any, to: str, *, project: str = "anchorscope", name: str | None = None, **options: Any) -> str:
    """Logs a finished run, `Run` or its folder, and gives the id that the tracker knows it by.

    The recipe becomes parameters; model, question files and versions tags; numbers of the summary metrics, each with
    the ends of its interval (NAME.low, NAME.high); curves metrics whose steps are layers; tables, figures and report
    files. `project` is MLflow's experiment; `options` are the library's own: `tracking_uri` for MLflow; `mode`,
    `entity`, `dir`, `group` for W&B; `space_id`, `server_url`, `group`, `private` for Trackio.
    """
    if to not in TRACKERS:
        raise unknown("tracker", to, TRACKERS)
    tracker = TRACKERS[to]
    for option in options:
        if option not in tracker.options:
            raise unknown(f"option of log_run to {to}", option, ("project", "name", *tracker.options))
    records = records_of(open_finished(named_folder(getattr(run, "path", run))))
    try:
        library = importlib.import_module(to)
    except ImportError as error:
        raise UserError(f"{to} cannot be imported ({error}); pip install {to}, in this environment.") from None
    try:
        return str(tracker.log(library, records, project, name or records.name, **options))
    except UserError:
        raise
    except Exception as error:  # each library, its transport and its server have errors of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{to} did not take the run ({reason}); what it has of it {tracker.leftover}.") from error


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
    scores, curves = run.csv("probe_scores"), run.csv("curves")
    shares = run.csv_where_made("question_share", SHARE_SCHEMA)
    metrics: dict[str, float] = {}
    for row in run.csv("summary").iter_rows(named=True):
        metrics |= _with_interval(_name(row["dataset"], *(row[column] for column in _SUMMARY)), row, "value")
    for row in scores.filter(pl.col("layer").is_null()).iter_rows(named=True):
        metrics |= _with_interval(_name(row["dataset"], "auc", row["kind"], row["intervention"]), row, "auc")
    headline = (pl.col("site") == run.recipe.site) & (pl.col("position") == run.recipe.position)
    in_layer = pl.col("layer").is_not_null() & headline
    all_answers = in_layer & (pl.col("truth") == "all")
    by_layer: dict[int, dict[str, float]] = {}
    for rows, value, title, columns in (
        (scores.filter(in_layer), "auc", "auc by layer", ("kind", "intervention")),
        (curves.filter(all_answers), "delta_p", "delta_p", ("intervention", "variant", "assignment", "group")),
        (shares.filter(all_answers), "share", "question share", ("intervention", "group")),
    ):
        for row in rows.iter_rows(named=True):
            name = _name(row["dataset"], title, *(row[column] for column in columns))
            by_layer.setdefault(int(row["layer"]), {}).update(_with_interval(name, row, value))
    return RunRecords(
        run.path.name,
        parameters_of(run.recipe.model_dump()),
        tags_of(run.manifest, sha256(run.path / "manifest.json")),
        metrics,
        dict(sorted(by_layer.items())),
        {name: run.path / f"{name}.csv" for name in _TABLES if (run.path / f"{name}.csv").is_file()},
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


def _with_interval(name: str, row: Mapping[str, Any], value: str) -> dict[str, float]:
    numbers = {name: row[value], f"{name}.low": row["ci_low"], f"{name}.high": row["ci_high"]}
    return {
        key: float(number) for key, number in numbers.items() if isinstance(number, int | float) and isfinite(number)
    }


def _name(*parts: object) -> str:
    return "/".join(_LETTERS.sub("_", str(part)) for part in parts if part is not None)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield from ((folder / name, "") for name in _FILES if (folder / name).is_file())
    if (folder / "figures").is_dir():
        yield from ((path, "figures") for path in sorted((folder / "figures").iterdir()) if path.is_file())


def _to_mlflow(library: Any, records: RunRecords, project: str, name: str, tracking_uri: str | None = None) -> str:
    """Through its client, so that a run the caller has open there is left alone."""
    client, entities = library.MlflowClient(tracking_uri=tracking_uri), library.entities
    existing = client.get_experiment_by_name(project)
    experiment = client.create_experiment(project) if existing is None else existing.experiment_id
    run = client.create_run(experiment, run_name=name).info.run_id
    done = False
    try:
        now = int(time.time() * 1000)
        tags = [entities.RunTag(key, value[:_LONGEST_TAG]) for key, value in records.tags.items()]
        parameters = [entities.Param(key, value[:_LONGEST_PARAMETER]) for key, value in records.parameters.items()]
        metrics = [entities.Metric(key, value, now, 0) for key, value in records.metrics.items()]
        metrics += [
            entities.Metric(key, value, now, layer)
            for layer, numbers in records.curves.items()
            for key, value in numbers.items()
        ]
        for part in _parts(tags, _OTHERS_AT_ONCE):
            client.log_batch(run, tags=part)
        for part in _parts(parameters, _OTHERS_AT_ONCE):
            client.log_batch(run, params=part)
        for part in _parts(metrics, _METRICS_AT_ONCE):
            client.log_batch(run, metrics=part)
        for path in records.tables.values():
            client.log_artifact(run, str(path), "tables")
        for path, folder in records.files:
            client.log_artifact(run, str(path), folder or None)
        done = True
    finally:
        client.set_terminated(run, "FINISHED" if done else "FAILED")
    return str(run)


def _parts(values: list[Any], size: int) -> Iterator[list[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _to_wandb(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
    """Numbers in its summary, curves with the layer as their axis, tables, files as an artefact."""
    run = library.init(
        project=project,
        name=name,
        config={"recipe": records.parameters, "made_of": records.tags},
        job_type="anchorscope",
        settings=library.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
        ),
        reinit="create_new",
        **options,
    )
    done = False
    try:
        run.define_metric("layer")
        for key in sorted({key for numbers in records.curves.values() for key in numbers}):
            run.define_metric(key, step_metric="layer", summary="none")
        for layer, numbers in records.curves.items():
            run.log({"layer": layer, **numbers})
        run.summary.update(records.metrics)
        for key, path in records.tables.items():
            table = pl.read_csv(path, infer_schema_length=None)
            rows = [list(row) for row in table.iter_rows()]
            run.log({f"tables/{key}": library.Table(columns=table.columns, data=rows, allow_mixed_types=True)})
        artefact = library.Artifact(f"run-{run.id}", type="anchorscope-run", metadata=records.tags)
        for path, folder in records.files:
            artefact.add_file(str(path), name=f"{folder}/{path.name}" if folder else path.name)
        run.log_artifact(artefact)
        done = True
    finally:
        run.finish(exit_code=0 if done else 1)
    return str(run.id)


def _to_trackio(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
    """It has steps only, no summary: single numbers stand at the first step.

    A run the caller has open there is left alone: the new one is open in a context of its own.
    """
    config = library.config  # the caller's, of the open run
    try:
        return copy_context().run(_in_trackio, library, records, project, name, **options)
    finally:
        library.config = config


def _in_trackio(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
    library.context_vars.current_run.set(None)  # init would end that run
    with contextlib.redirect_stdout(io.StringIO()):  # it greets at length
        run = library.init(
            project=project,
            name=name,
            config={**records.parameters, **records.tags},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
            **options,
        )
        try:
            steps = records.curves or {0: {}}
            first = min(steps)
            for layer, numbers in steps.items():
                library.log({**numbers, **(records.metrics if layer == first else {})}, step=layer)
            with tempfile.TemporaryDirectory() as folder:  # an artefact is a folder
                for path, inside in (*records.files, *((path, "tables") for path in records.tables.values())):
                    (Path(folder) / inside).mkdir(exist_ok=True)
                    copyfile(path, Path(folder) / inside / path.name)
                library.log_artifact(folder, name="run", type="anchorscope-run")
        finally:
            library.finish()
    return str(run.name)


@dataclass(frozen=True)
class Tracker:
    """A library that runs can be logged with."""

    log: Callable[..., str]
    """Logs the records and gives the run's id; `(library, records, project, name, **options)`."""
    options: tuple[str, ...]
    """What `log_run` takes beside project and name."""
    leftover: str
    """What becomes of a run that was not taken whole."""


TRACKERS = {
    "mlflow": Tracker(_to_mlflow, ("tracking_uri",), "is marked as failed"),
    "wandb": Tracker(_to_wandb, ("mode", "entity", "dir", "group"), "is marked as failed"),
    "trackio": Tracker(_to_trackio, ("space_id", "server_url", "group", "private"), "stays there, without a mark"),
}
"""Where a run can be logged, by the name of the library."""
