"""The options that say who runs passes, alike in every command that has them."""

from typing import Annotated

from anchorscope.cli.completion import one_of
from anchorscope.cli.help_texts import in_panel

_running = in_panel("Running")
Executor = Annotated[
    str,
    _running(
        "--executor", autocompletion=one_of(("local", "processes:2", "ray", "ray:auto")),
        help="Who runs the model: local (this process), processes:N (N on this machine), ray (starts one here) or "
        "ray:HOST:PORT (a cluster). The same bytes whichever it is.",
    ),
]  # fmt: skip
WorkersOption = Annotated[
    int | None,
    _running("--workers", help="How many workers, where --executor does not say; as many as devices where not given."),
]
Lease = Annotated[
    float | None,
    _running(
        "--lease", help="Seconds that a worker has for one batch, before it goes to another. Default: 600."
    ),
]
Mixed = Annotated[
    bool,
    _running("--mixed", help="Take workers whose last digits differ (other device, versions, threads); it is told."),
]
DevicesPerWorker = Annotated[
    int | None,
    _running("--devices-per-worker", help="GPUs that one worker owns, for models larger than one. Default: 1."),
]
