"""`anchorscope show`: one item of a finished run in the terminal, or its answer card and items to choose from.

The same as the explorer of report.html: the question with its exact words, the answer and its verdict, the pathway by
every rule, and what every intervention did. The result goes to standard output, advice to standard error.
"""

import difflib
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from anchorscope.cli.terminal import emit_json, harmless, loading, page, say, short, user_errors
from anchorscope.errors import UserError

if TYPE_CHECKING:  # polars and the report are imported when a run is opened: help has to come at once
    import polars as pl

    from anchorscope.finished import FinishedRun

EXAMPLES = (
    ("the answer card, and a few items", "anchorscope show runs/demo"),
    ("items with these words", "anchorscope show runs/demo --search capital"),
    ("one item", "anchorscope show runs/demo atlas/ITEM"),
)
"""What people type first, and what for."""
_FEW, _MANY, _NEAREST = 10, 50, 3
_LONG, _LONGEST_ID = 70, 200
_ONE_LINE_PER_ROW = 100_000  # columns of a pipe
_LISTED = ("dataset", "item_id", "question", "model_answer", "truthful", "status", "pathway")
_SEARCHED = ("item_id", "question", "model_answer", "subject")


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)],
    item: Annotated[
        str | None,
        typer.Argument(
            metavar="ITEM",
            show_default=False,
            help="An item's id, or DATASET/ID. Without it: the answer card and a few items.",
        ),
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="List items with these words in question, answer, subject or id.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No advice.")] = False,
) -> None:
    """Show what a finished run found, or one of its items: question, answer, pathways, what every cut did to it."""
    with user_errors(stopped="stopped"):
        if item is not None and search is not None:
            raise UserError(f"Either an item ({item!r}) or --search {search!r}: leave one of them out.")

        with loading("polars", quiet):
            from anchorscope.finished import open_finished

        finished = open_finished(run)
        if finished.older_columns:
            say(finished.older_columns, quiet)
        if item is None:
            return _list(finished, search, as_json, quiet)
        _show_item(finished, item, as_json)


def _show_item(run: "FinishedRun", name: str, as_json: bool) -> None:
    from anchorscope.cli.item_page import print_item
    from anchorscope.report.items.item_records import record

    dataset, item_id = _found(run, name)
    findings = run.findings
    found = record(findings, dataset, item_id)
    assert found is not None, "the item was just found in items.parquet"
    if as_json:
        about = {name: getattr(findings, name) for name in ("model", "site", "position", "n_layers", "random_weights")}
        return emit_json({"run": run.path, **about, **asdict(found)})
    print_item(found, findings)


def _found(run: "FinishedRun", name: str) -> tuple[str, str]:
    """The dataset and id of the item that is meant."""

    keys = list(run.parquet("items").select("dataset", "item_id").iter_rows())
    whole = [key for key in keys if name == f"{key[0]}/{key[1]}"]
    # An id may have a slash in it; whoever names dataset and id means just that.
    fitting = whole or [key for key in keys if name == key[1]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        told = ", ".join(harmless(f"{dataset}/{item_id}") for dataset, item_id in fitting)
        raise UserError(f"The item {name!r} is in several datasets; name one: {told}.")
    ids = [f"{dataset}/{item_id}" if "/" in name else item_id for dataset, item_id in keys]
    near = difflib.get_close_matches(name[:_LONGEST_ID], dict.fromkeys(ids), n=_NEAREST, cutoff=0.5)
    hint = f" The nearest: {', '.join(map(repr, near))}." if near else ""
    raise UserError(
        f"No item {name[:_LONGEST_ID]!r} among the {len(keys):,} of {str(run.path)!r}.{hint} "
        f"List items with: anchorscope show {shlex.quote(str(run.path))} --search TEXT"
    )


def _list(run: "FinishedRun", search: str | None, as_json: bool, quiet: bool) -> None:

    items = run.parquet("items")
    found = _matching(items, search or "")
    # Used items first: of the others there is less to see.
    rows = sorted(found.select(_LISTED).iter_rows(named=True), key=lambda row: row["status"] != "used")
    if as_json:
        answer = {} if search is not None else {"answer": run.card.record()}
        return emit_json({"run": run.path, **answer, "search": search, "found": len(rows), "items": rows})
    if search is not None and not rows:
        say(f"no item of {run.path} has all of these words: {search!r}", quiet)
        return
    shown = rows[: _FEW if search is None else _MANY]
    if search is None:
        _print_card(run)
    _print_list(shown)
    command = f"anchorscope show {shlex.quote(str(run.path))}"
    if len(shown) < len(rows):
        say(f"\n{len(shown)} of {len(rows):,} items; narrow down with: {command} --search TEXT", quiet)
    if shown:
        name = f"{shown[0]['dataset']}/{shown[0]['item_id']}"
        say(f"{'' if len(shown) < len(rows) else chr(10)}open one with: {command} {harmless(shlex.quote(name))}", quiet)


def _print_card(run: "FinishedRun") -> None:
    from anchorscope.screen.card_letters import print_card

    with page() as console:
        print_card(run.card, console)
        console.print("\nA few items")


def _matching(items: "pl.DataFrame", text: str) -> "pl.DataFrame":
    """Items that have every word somewhere, in any order; accents and capitals do not matter."""
    words = plain_letters(text).split()
    if not words:
        return items
    columns = [name for name in _SEARCHED if name in items.columns]
    texts = (plain_letters("\n".join(value or "" for value in row)) for row in items.select(columns).iter_rows())
    return items.filter([all(word in text for word in words) for text in texts])


def plain_letters(text: str) -> str:
    """Small letters without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter)).lower()


def _print_list(rows: Sequence[dict[str, Any]]) -> None:
    names = [harmless(f"{row['dataset']}/{row['item_id']}") for row in rows]
    with page(_ONE_LINE_PER_ROW) as console:
        table = Table.grid(padding=(0, 2, 0, 0))
        # The name has to be whole, or it cannot be copied; only one that would fill the screen is folded.
        table.add_column(overflow="fold", width=min(max(map(len, names), default=1), console.width // 2))
        table.add_column(overflow="fold")
        for name, row in zip(names, rows, strict=True):
            truth = {True: "true", False: "false"}.get(row["truthful"], "not graded")
            asked, said = short(row["question"], _LONG), short(row["model_answer"], _LONG // 2) or "nothing"
            table.add_row(Text(name), Text(f"{asked} → {said} ({truth}, {row['pathway'] or row['status']})"))
        console.print(table)
