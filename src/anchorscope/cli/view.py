"""`anchorscope view`: runs, comparisons, detectors and validations below a folder, in the browser."""

import os
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.help_texts import AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, loading, say, user_errors
from anchorscope.errors import UserError

if TYPE_CHECKING:
    from anchorscope.viewing.found import Found, Shelf

EXAMPLES = (
    ("everything below runs/", "anchorscope view"),
    ("one folder, at a port of your choice", "anchorscope view results --port 8642"),
    ("on a machine without a screen: forward the port", "ssh -L 8642:127.0.0.1:8642 HOST anchorscope view --port 8642"),
)
"""What people type first, and what for."""
_running = in_panel("Running")
_LOOPBACK = ("127.0.0.1", "localhost")


def view(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Where runs lie; all folders below are looked through.")
    ] = "runs",
    port: Annotated[int, _running(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, _running("--browser/--no-browser", help="Whether to open the browser.")] = True,
    host: Annotated[str, _running(help="The address to listen on: of this machine only.")] = "127.0.0.1",
    public: Annotated[
        bool, _running("--public", help="Allow a --host that others can reach: they can read all that is listed.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """List runs with their answer cards in the browser, and open their reports."""
    if host not in _LOOPBACK and not public:
        raise UserError(
            f"--host {host!r} is not this machine alone ({' or '.join(_LOOPBACK)}); others could read everything that "
            f"is listed. Add --public if that is meant, or forward the port through ssh."
        )
    from anchorscope.recipe import named_folder  # only here: help has to come at once

    place = named_folder(folder)
    if not place.is_dir():
        raise UserError(
            f"There is no folder {str(place)!r}; name the one that holds your runs, or make a run first: "
            f"anchorscope run --limit 500 --out runs/demo"
        )

    with loading("polars", quiet):
        from anchorscope.viewing.found import Shelf

    if as_json:
        found = _some(Shelf(place.resolve()), place)
        return emit_json({"folder": str(place), "found": [one.record() for one in found]})
    with user_errors(stopped="stopped"):
        _serve(place, host, port, browser, quiet)


def _some(shelf: "Shelf", place: Path) -> "list[Found]":
    found = shelf.found()
    if not found:
        raise UserError(
            f"No run lies below {str(place)!r}; make one with: anchorscope run --limit 500 --out "
            f"{shlex.quote(str(place / 'demo'))}, or name the folder that holds yours: anchorscope view FOLDER"
        )
    return found


def has_screen() -> bool:
    """Whether a browser would have a window: elsewhere a text browser would take the terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _serve(place: Path, host: str, port: int, browser: bool, quiet: bool) -> None:
    from anchorscope.viewing.server import ViewServer

    with ViewServer(place, host, port) as server:
        n = len(_some(server.shelf, place))
        say(f"{n} result{'s' * (n > 1)} in {place}: {server.address}  (Ctrl-C ends)", quiet)
        if browser and has_screen():
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("", quiet)  # behind the ^C that the terminal shows
