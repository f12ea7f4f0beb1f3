"""A run in MLflow, through its client: whatever run the caller has open there is left alone."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from anchorscope.tracking.records import RunRecords

_METRICS_AT_ONCE, _OTHERS_AT_ONCE = 1000, 100  # what MLflow takes in one request
_LONGEST_PARAMETER, _LONGEST_TAG = 6000, 5000  # letters
OPTIONS = ("tracking_uri",)
"""What `log_run` may be told beside project and name."""
LEFT = "what it has of it is marked as failed"
"""What becomes of a run that was not taken whole."""


def log(library: Any, records: RunRecords, project: str, name: str, tracking_uri: str | None = None) -> str:
    """Logs the run and gives its id."""
    client, entities = library.MlflowClient(tracking_uri=tracking_uri), library.entities
    found = client.get_experiment_by_name(project)
    experiment = client.create_experiment(project) if found is None else found.experiment_id
    run = client.create_run(experiment, run_name=name).info.run_id
    done = False
    try:
        now = int(time.time() * 1000)
        tags = [entities.RunTag(key, value[:_LONGEST_TAG]) for key, value in records.tags.items()]
        given = [entities.Param(key, value[:_LONGEST_PARAMETER]) for key, value in records.parameters.items()]
        numbers = [entities.Metric(key, value, now, 0) for key, value in records.metrics.items()]
        numbers += [
            entities.Metric(key, value, now, layer)
            for layer, found in records.curves.items()
            for key, value in found.items()
        ]
        for part in _parts(tags, _OTHERS_AT_ONCE):
            client.log_batch(run, tags=part)
        for part in _parts(given, _OTHERS_AT_ONCE):
            client.log_batch(run, params=part)
        for part in _parts(numbers, _METRICS_AT_ONCE):
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
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part
