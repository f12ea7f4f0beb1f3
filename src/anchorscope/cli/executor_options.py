"""The options that say who runs passes, alike in every command that has them."""

from typing import Annotated

from anchorscope.cli.completion import one_of
from anchorscope.cli.help_texts import in_panel
from anchorscope.options import RUNNING

_running = in_panel(RUNNING)
Executor = Annotated[
    str | None,
    _running(
        "--executor",
        autocompletion=one_of(("local", "ray", "ray:auto")),
        help="Who runs the model: local (this process), ray (workers on this machine) or ray:HOST:PORT (a cluster). "
        "The same bytes whichever it is. Default: local, and ray with --workers.",
    ),
]
WorkersOption = Annotated[
    int | None,
    _running("--workers", help="Number of workers, on Ray. Default: as many as there is room for, one GPU each."),
]
Mixed = Annotated[
    bool,
    _running("--mixed", help="Allow workers whose last digits differ (device, versions, threads); the report says so."),
]
