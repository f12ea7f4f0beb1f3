"""`anchorscope show`, `verify`, `view` and `plugins`: a run, its damage, all runs in the browser, other packages.

Questions and answers are other people's text: control characters become visible signs, and brackets are no markup.
"""

import difflib
import os
import shlex
import sys
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.help import AsJson, Quiet, running
from anchorscope.cli.terminal import (
    emit_json,
    emit_text,
    listener,
    loading,
    page,
    print_rows,
    record_rows,
    short,
    user_errors,
)
from anchorscope.errors import UserError
from anchorscope.screen import card_text, harmless, say

if TYPE_CHECKING:  # polars and the report are imported when a run is opened: help has to come at once
    from anchorscope.finished import FinishedRun

EXAMPLES = {
    "show": (
        ("the answer card, and a few items", "anchorscope show runs/demo"),
        ("one item", "anchorscope show runs/demo atlas/ITEM"),
    ),
    "verify": (("is everything there, and as it was written?", "anchorscope verify runs/*"),),
    "view": (
        ("everything below runs/", "anchorscope view"),
        ("through ssh: forward the port", "ssh -L 8642:127.0.0.1:8642 HOST anchorscope view --port 8642"),
    ),
    "plugins": (("what is installed", "anchorscope plugins"),),
}
_FEW, _LONG, _LONGEST_ID = 10, 70, 200
_LISTED = ("dataset", "item_id", "question", "model_answer", "truthful", "status", "pathway")
_TRUTH = {True: "true", False: "false", None: "not graded"}
_MAKE_ONE = "make a run first: anchorscope run --limit 500 --out runs/demo"


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)],
    item: Annotated[
        str | None, typer.Argument(metavar="ITEM", show_default=False, help="An item's id, or DATASET/ID; else a few.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No advice.")] = False,
) -> None:
    with user_errors(stopped="stopped"):
        with loading("polars", quiet):
            from anchorscope.finished import open_finished

        finished = open_finished(run)
        if finished.older_columns:
            say(finished.older_columns, quiet)
        if item is None:
            return _show_run(finished, as_json, quiet)
        _show_item(finished, item, as_json)


def _show_item(run: "FinishedRun", name: str, as_json: bool) -> None:
    from anchorscope.report.items import record

    item = record(run.findings, *_find_item(run, name))
    assert item is not None, "the item was just found in items.parquet"
    if as_json:
        shared = ("model", "site", "position", "n_layers", "random_weights")
        return emit_json({"run": run.path, **{key: getattr(run.findings, key) for key in shared}, **item})
    text, question, end = item["question"], "", 0  # with its exact words in brackets
    for start, stop in item["marks"]:
        if stop > max(start, end):
            question += f"{text[end : max(start, end)]}⟦{text[max(start, end) : stop]}⟧"
            end = stop
    further = {f"{row['experiment']} {row['variant'] or ''} {row['quantity']}": row["value"] for row in item["further"]}
    facts = {**item, "question": question + text[end:], "accepted": tuple(item["accepted"]), "further": further}
    print_rows(record_rows(facts | {"marks": None, "effects": None}))
    if not item["effects"]:
        return emit_text(f"\nThe item was not used ({item['status']}): nothing was cut, and no probe scored it.")
    rows = [("what was done", "tokens", "ΔP at l*", "flips")]
    for effect in item["effects"]:
        delta = "–" if effect["delta_p_reference"] is None else f"{effect['delta_p_reference']:+.1f}"
        done = f"{effect['intervention']} {effect['variant']}".rstrip()
        rows.append((done, f"{effect['n_cut']:g}", delta, f"{effect['flips']} of {effect['runs']}"))
    emit_text()
    print_rows(rows)


def _find_item(run: "FinishedRun", name: str) -> tuple[str, str]:
    """The dataset and id of the named item."""
    keys = list(run.parquet("items").select("dataset", "item_id").iter_rows())
    # An id may have a slash in it: DATASET/ID goes first.
    fitting = [key for key in keys if name == "/".join(key)] or [key for key in keys if name == key[1]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(harmless("/".join(key)) for key in fitting)
        raise UserError(f"The item {name!r} is in several datasets; name one: {names}.")
    ids = ["/".join(key) if "/" in name else key[1] for key in keys]
    near = difflib.get_close_matches(name[:_LONGEST_ID], dict.fromkeys(ids), cutoff=0.5)
    hint = f" The nearest: {', '.join(map(repr, near))}." if near else ""
    raise UserError(f"No item {name[:_LONGEST_ID]!r} among the {len(keys):,} of {str(run.path)!r}.{hint}")


def _show_run(run: "FinishedRun", as_json: bool, quiet: bool) -> None:
    """The answer card and a few items, used ones first: of the others there is less to see."""
    items = run.parquet("items").select(_LISTED).iter_rows(named=True)
    rows = sorted(items, key=lambda row: row["status"] != "used")
    if as_json:
        return emit_json({"run": run.path, "answer": run.card.record(), "items": rows})
    with page() as console:
        console.print(card_text(run.card, console.width), soft_wrap=True)
        console.print("\nA few items")
    for row in rows[:_FEW]:
        asked, answer = short(row["question"], _LONG), short(row["model_answer"], _LONG // 2) or "nothing"
        status = f"{_TRUTH[row['truthful']]}, {row['pathway'] or row['status']}"
        emit_text(harmless(f"{row['dataset']}/{row['item_id']}  {asked} → {answer} ({status})"))
    name = shlex.quote(f"{rows[0]['dataset']}/{rows[0]['item_id']}")
    say(f"\nopen one with: anchorscope show {shlex.quote(str(run.path))} {harmless(name)}", quiet)


def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs, finished or not, comparisons, validations or detectors."),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
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


def view(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Where your runs are; all folders below are searched.")
    ] = "runs",
    port: Annotated[int, running(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, running("--browser/--no-browser", help="Whether to open the browser.")] = True,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    from anchorscope.recipe import named_folder  # only here: help has to come at once

    path = named_folder(folder)
    if not path.is_dir():
        raise UserError(f"There is no folder {str(path)!r}; name the one that holds your runs, or {_MAKE_ONE}")

    with loading("polars", quiet):
        from anchorscope.comparing.compare import compare
        from anchorscope.viewing.results import list_results
        from anchorscope.viewing.server import ViewServer

    with user_errors(stopped="stopped"), ViewServer(path, port, compare) as server:
        results = list_results(server.root)
        if not results:
            raise UserError(f"There is no run below {str(path)!r}; name the folder that holds yours, or {_MAKE_ONE}")
        if as_json:
            return emit_json({"folder": str(path), "found": [asdict(result) for result in results]})
        n = len(results)
        say(f"{n} result{'s' * (n > 1)} in {path}: {server.address}  (Ctrl-C ends)", quiet)
        if browser and has_screen():
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("", quiet)  # behind the ^C that the terminal shows


def has_screen() -> bool:
    """Whether a browser would have a window; a text browser would take the terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def plugins(as_json: AsJson = False) -> None:
    from anchorscope.plugins import KINDS, installed, problem

    every = installed()
    if every:
        with loading("torch", as_json):
            problems = {plugin: problem(plugin) for plugin in every}
    if as_json:
        return emit_json({"plugins": [asdict(plugin) | {"problem": problems[plugin]} for plugin in every]})
    if not every:
        return say("No plug-ins are installed; docs/extending.md shows how to write one.")
    rows = [("adds", "name", "package", "object", "usable")]
    for plugin in every:
        package, usable = f"{plugin.package} {plugin.version}", "no" if problems[plugin] else "yes"
        rows.append((KINDS[plugin.group].about, plugin.name, package, plugin.reference, usable))
    print_rows(rows)
    for line in filter(None, problems.values()):
        say(line)
