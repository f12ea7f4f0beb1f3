"""A run in Trackio, which lives on this machine unless it is told otherwise; it has steps only, no summary.

Whatever run the caller has open there is left alone: the new one is open in a context of its own.
"""

import contextlib
import io
import tempfile
from contextvars import copy_context
from pathlib import Path
from shutil import copyfile
from typing import Any

from anchorscope.tracking.records import RunRecords

OPTIONS = ("space_id", "server_url", "group", "private")
"""What `log_run` may be told beside project and name."""
LEFT = "what it has of it stays there, without a mark"
"""What becomes of a run that was not taken whole."""


def log(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
    """Logs the run and gives its name; single numbers stand at the first step."""
    config = library.config  # the caller's, of the open run
    try:
        return copy_context().run(_log, library, records, project, name, **options)
    finally:
        library.config = config


def _log(library: Any, records: RunRecords, project: str, name: str, **options: Any) -> str:
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
            for layer, found in steps.items():
                library.log({**found, **(records.metrics if layer == first else {})}, step=layer)
            with tempfile.TemporaryDirectory() as folder:
                _log_files(library, records, Path(folder))
        finally:
            library.finish()
    return str(run.name)


def _log_files(library: Any, records: RunRecords, folder: Path) -> None:
    """Tables, report and figures as one artefact: it takes a folder."""
    for path, inside in (*records.files, *((path, "tables") for path in records.tables.values())):
        (folder / inside).mkdir(exist_ok=True)
        copyfile(path, folder / inside / path.name)
    library.log_artifact(str(folder), name="run", type="anchorscope-run")
