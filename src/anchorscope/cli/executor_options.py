"""The options that say who runs passes, alike in every command that has them."""

from typing import Annotated

from anchorscope.cli.completion import one_of
from anchorscope.cli.help_texts import in_panel
from anchorscope.options import RUNNING

_running = in_panel(RUNNING)
Executor = Annotated[
    str,
    _running(
        "--executor",
        autocompletion=one_of(("local", "processes:2", "ray", "ray:auto")),
        help="Who runs the model: local (this process), processes:N (N on this machine), ray (starts one here) or "
        "ray:HOST:PORT (a cluster). The same bytes whichever it is.",
    ),
]
WorkersOption = Annotated[
    int | None, _running("--workers", help="Number of workers, if --executor does not say it. Default: one per device.")
]
Lease = Annotated[
    float | None,
    _running("--lease", help="Seconds that a worker has for one batch, before it goes to another. Default: 600."),
]
Mixed = Annotated[
    bool,
    _running("--mixed", help="Allow workers whose last digits differ (device, versions, threads); the report says so."),
]
DevicesPerWorker = Annotated[
    int | None, _running("--devices-per-worker", help="GPUs per worker, for models that do not fit on one. Default: 1.")
]
