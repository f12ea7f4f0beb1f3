"""`anchorscope verify`: is a folder of ours whole, and which command makes damaged files again."""

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.help_texts import AsJson, Quiet
from anchorscope.cli.terminal import emit_json, emit_text, harmless, listener, loading, user_errors
from anchorscope.errors import UserError

EXAMPLES = (
    ("is everything there, and as it was written?", "anchorscope verify runs/demo"),
    ("all runs, for a program", "anchorscope verify runs/* --json"),
)
"""What people type first, and what for."""


def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            show_default=False,
            help="Folders of runs, finished or not; of comparisons, validations and detectors; or bundles.",
        ),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check every file of a run against its size and sha256. Exit code 0: all are whole; 2: some are damaged."""
    with user_errors(stopped="stopped; nothing is lost, the same command starts again"):
        with loading("polars", quiet):
            from anchorscope.verifying import verify as verify_folder

        checked = [verify_folder(folder, listener(quiet)) for folder in folders]
        damaged = [verified for verified in checked if not verified.whole]
        if as_json:
            emit_json({"whole": not damaged, "folders": [verified.record() for verified in checked]})
        elif not quiet:
            for verified in checked:
                emit_text("\n".join(map(harmless, verified.lines())))
        if damaged:
            first = damaged[0]
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            again = "; then: ".join(first.commands)
            raise UserError(f"{str(first.path)!r} is damaged{more}. Run the same command again: {again}")
