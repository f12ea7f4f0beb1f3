"""`anchorscope show`, `verify`, `view` and `plugins`: results of a run, damage, all runs in the browser, other
packages.

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
from rich.table import Table

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
from anchorscope.screen import harmless, print_card, say

if TYPE_CHECKING:  # polars and the report are imported when a run is opened: help has to come at once
    from collections.abc import Sequence

    import polars as pl

    from anchorscope.finished import FinishedRun
    from anchorscope.viewing.results import Result, ResultFolder

EXAMPLES = {
    "show": (
        ("the answer card, and a few items", "anchorscope show runs/demo"),
        ("items with these words", "anchorscope show runs/demo --search capital"),
        ("one item", "anchorscope show runs/demo atlas/ITEM"),
        ("the paper's chart", "anchorscope show runs/demo --figure delta_p --out delta_p.pdf --size 3.5 3"),
    ),
    "verify": (
        ("is everything there, and as it was written?", "anchorscope verify runs/demo"),
        ("all runs, for a program", "anchorscope verify runs/* --json"),
    ),
    "view": (
        ("everything below runs/", "anchorscope view"),
        ("one folder, at a port of your choice", "anchorscope view results --port 8642"),
        ("through ssh: forward the port", "ssh -L 8642:127.0.0.1:8642 HOST anchorscope view --port 8642"),
    ),
    "plugins": (("what is installed", "anchorscope plugins"), ("the same for a program", "anchorscope plugins --json")),
}
_FEW, _MANY, _LONG, _LONGEST_ID = 10, 50, 70, 200
_LISTED = ("dataset", "item_id", "question", "model_answer", "truthful", "status", "pathway")
_SEARCHED = ("item_id", "question", "model_answer", "subject")
_TRUTH = {True: "true", False: "false", None: "not graded"}
_LOOPBACK = ("127.0.0.1", "localhost")


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)],
    item: Annotated[
        str | None, typer.Argument(metavar="ITEM", show_default=False, help="An item's id, or DATASET/ID; else a few.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="List items with these words in question, answer, subject or id.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write a figure, such as delta_p, into --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of --figure: .svg, .pdf, .png, or .csv for its numbers.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Of --figure: only these datasets (may be repeated).")
    ] = None,
    size: Annotated[
        tuple[float, float] | None, typer.Option(metavar="WIDTH HEIGHT", help="Of the ΔP chart, in inches.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No advice.")] = False,
) -> None:
    with user_errors(stopped="stopped"):
        if (figure is None) != (out is None) or (figure is None and (dataset or size)):
            raise UserError("--figure NAME and --out FILE belong together; --dataset and --size change a figure.")
        if item is not None and search is not None:
            raise UserError(f"Either an item ({item!r}) or --search {search!r}: leave one of them out.")

        with loading("polars", quiet):
            from anchorscope.finished import open_finished

        finished = open_finished(run)
        if finished.older_columns:
            say(finished.older_columns, quiet)
        if figure is not None and out is not None:
            from anchorscope.report.render import figure_named, write_display

            write_display(figure_named(finished.findings, figure, dataset, size), out)
            return say(f"figure: {out}", quiet)
        if item is None:
            return _list_items(finished, search, as_json, quiet)
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
    raise UserError(
        f"No item {name[:_LONGEST_ID]!r} among the {len(keys):,} of {str(run.path)!r}.{hint} "
        f"List items with: anchorscope show {shlex.quote(str(run.path))} --search TEXT"
    )


def _list_items(run: "FinishedRun", search: str | None, as_json: bool, quiet: bool) -> None:
    matching = _filter_items(run.parquet("items"), search or "")
    # Used items first: of the others there is less to see.
    rows = sorted(matching.select(_LISTED).iter_rows(named=True), key=lambda row: row["status"] != "used")
    if as_json:
        card = {} if search is not None else {"answer": run.card.record()}
        return emit_json({"run": run.path, **card, "search": search, "found": len(rows), "items": rows})
    if search is not None and not rows:
        return say(f"no item of {run.path} has all of these words: {search!r}", quiet)
    shown = rows[: _FEW if search is None else _MANY]
    if search is None:
        with page() as console:
            print_card(run.card, console)
            console.print("\nA few items")
    for row in shown:
        asked, answer = short(row["question"], _LONG), short(row["model_answer"], _LONG // 2) or "nothing"
        status = f"{_TRUTH[row['truthful']]}, {row['pathway'] or row['status']}"
        emit_text(harmless(f"{row['dataset']}/{row['item_id']}  {asked} → {answer} ({status})"))
    command = f"anchorscope show {shlex.quote(str(run.path))}"
    if len(shown) < len(rows):
        say(f"\n{len(shown)} of {len(rows):,} items; narrow down with: {command} --search TEXT", quiet)
    if shown:
        name = f"{shown[0]['dataset']}/{shown[0]['item_id']}"
        say(f"{'' if len(shown) < len(rows) else chr(10)}open one with: {command} {harmless(shlex.quote(name))}", quiet)


def _filter_items(items: "pl.DataFrame", text: str) -> "pl.DataFrame":
    """Items that have every word somewhere, in any order, ignoring accents and case."""
    import polars as pl

    def plain(texts: "pl.Expr") -> "pl.Expr":
        return texts.str.normalize("NFD").str.replace_all(r"\p{M}", "").str.to_lowercase()

    columns = [pl.col(name).fill_null("") for name in _SEARCHED if name in items.columns]
    searched = plain(pl.concat_str(columns, separator="\n"))
    return items.filter(*(searched.str.contains(plain(pl.lit(word)), literal=True) for word in text.split()))


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
    host: Annotated[str, running(help="The address to listen on: of this machine only.")] = "127.0.0.1",
    public: Annotated[
        bool, running("--public", help="Allow a --host that others can reach: they can read all that is listed.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    if host not in _LOOPBACK and not public:
        raise UserError(
            f"--host {host!r} is not this machine alone ({' or '.join(_LOOPBACK)}); others could read everything that "
            f"is listed. Add --public if that is meant, or forward the port through ssh."
        )
    from anchorscope.recipe import named_folder  # only here: help has to come at once

    path = named_folder(folder)
    if not path.is_dir():
        raise UserError(
            f"There is no folder {str(path)!r}; name the one that holds your runs, or make a run first: "
            f"anchorscope run --limit 500 --out runs/demo"
        )

    with loading("polars", quiet):
        from anchorscope.comparing.compare import compare
        from anchorscope.viewing.results import ResultFolder
        from anchorscope.viewing.server import ViewServer

    if as_json:
        results = _results(ResultFolder(path.resolve()), path)
        return emit_json({"folder": str(path), "found": [asdict(result) for result in results]})
    with user_errors(stopped="stopped"), ViewServer(path, host, port, compare) as server:
        n = len(_results(server.results, path))
        say(f"{n} result{'s' * (n > 1)} in {path}: {server.address}  (Ctrl-C ends)", quiet)
        if browser and has_screen():
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("", quiet)  # behind the ^C that the terminal shows


def _results(folder: "ResultFolder", path: Path) -> "Sequence[Result]":
    results = folder.list()
    if not results:
        raise UserError(
            f"There is no run below {str(path)!r}; make one with: anchorscope run --limit 500 --out "
            f"{shlex.quote(str(path / 'demo'))}, or name the folder that holds yours: anchorscope view FOLDER"
        )
    return results


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
    table = Table("adds", "name", "package", "object", "usable", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for plugin in every:
        usable = "no" if problems[plugin] else "yes"
        package = f"{plugin.package} {plugin.version}"
        table.add_row(KINDS[plugin.group].about, plugin.name, package, plugin.reference, usable)
    with page(200) as console:
        console.print(table)
    for line in filter(None, problems.values()):
        say(line)
