"""`anchorscope verify`: is a folder of ours whole, and what mends it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.help_texts import AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, emit_text, harmless, listener, loading, user_errors
from anchorscope.errors import UserError

if TYPE_CHECKING:
    from anchorscope.artefacts.verify import Verified

EXAMPLES = (
    ("is everything there, and as it was written?", "anchorscope verify runs/demo"),
    ("make again what is not", "anchorscope verify runs/demo --repair"),
    ("all runs, for a program", "anchorscope verify runs/* --json"),
)
"""What people type first, and what for."""
_running = in_panel("Running")


def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            show_default=False,
            help="Folders of runs, finished or not; of comparisons, validations and detectors; or bundles.",
        ),
    ],
    repair: Annotated[
        bool,
        _running(
            "--repair",
            help="Make damaged steps and results of a run again, from what is whole; a changed file "
            "is moved aside to NAME.changed-1. The model is loaded only where a step needs it.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check every file of a run against its size and sha256. Exit code 0: all are whole; 2: some are damaged."""
    with user_errors(stopped="stopped; nothing is lost, the same command starts again"):
        with loading("polars", quiet):
            from anchorscope.artefacts.verify import verify as verify_folder

        found = []
        for folder in folders:
            if repair:
                with loading("torch", quiet):
                    from anchorscope.repair import repair as repair_folder

                found.append(repair_folder(folder, listener(quiet)))
            else:
                found.append(verify_folder(folder, listener(quiet)))
        if as_json:
            emit_json({"whole": all(one.whole for one in found), "folders": [one.record() for one in found]})
        elif not quiet:
            for one in found:
                emit_text("\n".join(map(harmless, one.lines())))
        damaged = [one for one in found if not one.whole]
        if damaged:
            raise UserError(_told(damaged))


def _told(damaged: "list[Verified]") -> str:
    """The one line at the end: which folder, and the command that mends it."""
    first = damaged[0]
    more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    return f"{str(first.path)!r} is damaged{more}. Mend it with: {'; then: '.join(first.commands)}"
