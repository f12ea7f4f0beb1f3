"""`anchorscope plugins`: what other packages add, and whether it can be used."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from anchorscope.cli.terminal import emit_json, loading, page, say
from anchorscope.plugins import KINDS, installed, problem

EXAMPLES = (("what is installed", "anchorscope plugins"), ("the same for a program", "anchorscope plugins --json"))
"""What people type first, and what for."""
_WIDE = 200  # columns of a pipe, so that no row is folded


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """List what other packages add to anchorscope, where it comes from, and whether it can be used."""
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
    with page(_WIDE) as console:
        console.print(table)
    for line in filter(None, problems.values()):
        say(line)
