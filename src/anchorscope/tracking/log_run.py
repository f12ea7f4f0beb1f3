"""`anchorscope.log_run(run, to="mlflow")`: a finished run in a tracker of experiments."""

import importlib
from typing import Any

from anchorscope.artefacts.finished import open_finished
from anchorscope.errors import UserError, unknown
from anchorscope.recipe import named_folder
from anchorscope.system_errors import told_to_callers
from anchorscope.tracking import mlflow_log, trackio_log, wandb_log
from anchorscope.tracking.records import records_of

TRACKERS = {"mlflow": mlflow_log, "wandb": wandb_log, "trackio": trackio_log}
"""Where a run can be logged, by the name of the library."""
_COMMON = ("project", "name")


@told_to_callers
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
        if option not in tracker.OPTIONS:
            raise unknown(f"option of log_run to {to}", option, (*_COMMON, *tracker.OPTIONS))
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
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{to} did not take the run ({told}); {tracker.LEFT}.") from error
