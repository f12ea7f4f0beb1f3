"""A run in Weights & Biases: numbers in its summary, curves with the layer as their axis, tables, files as artefact."""

from typing import Any

import polars as pl

from anchorscope.tracking.records import RunRecords

OPTIONS = ("mode", "entity", "dir", "group")
"""What `log_run` may be told beside project and name; mode="offline" needs no account."""
LEFT = "what it has of it is marked as failed"
"""What becomes of a run that was not taken whole."""


def log(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
    """Logs the run and gives its id."""
    config = {"recipe": records.parameters, "made_of": records.tags}
    quiet = library.Settings(silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True)
    run = library.init(
        project=project,
        name=name,
        config=config,
        job_type="anchorscope",
        settings=quiet,
        reinit="create_new",
        **options,
    )
    done = False
    try:
        run.define_metric("layer")
        for key in sorted({key for found in records.curves.values() for key in found}):
            run.define_metric(key, step_metric="layer", summary="none")
        for layer, found in records.curves.items():
            run.log({"layer": layer, **found})
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
