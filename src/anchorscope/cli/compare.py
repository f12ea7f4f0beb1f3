"""`anchorscope compare`: finished runs side by side, one chart with a panel per model."""

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.terminal import emit_json, listener, loading, say, user_errors
from anchorscope.comparing.rules import REFUSABLE

_STOPPED = "stopped; nothing half made was kept, the same command starts again"
_ALLOW = (
    "Differences that would be refused and shall stand, as flags on the page: names with commas, or all: "
    f"{', '.join(REFUSABLE)}."
)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs, at least two; with --claims, one.")
    ],
    out: Annotated[str, typer.Option(help="The folder for the chart, the tables and the page.")],
    names: Annotated[
        str | None, typer.Option(help="A label per run, with commas, in the order of the runs: for example chat,plain.")
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Also judge what five earlier written readings of such charts claimed.")
    ] = False,
    relative_depth: Annotated[
        bool, typer.Option("--relative-depth", help="The x axis from 0 (first layer) to 1 (last) instead of layers.")
    ] = False,
    assignment: Annotated[str, typer.Option(help="The rule of the chart: plain, corrected or cross-fitted.")] = "plain",
    order: Annotated[str, typer.Option(help="The panels' order: size (smallest model first) or given.")] = "size",
    allow: Annotated[list[str] | None, typer.Option(help=_ALLOW)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Put finished runs side by side: a panel per model, what changes with size, and what the runs do not share."""
    with loading("polars", quiet):
        from anchorscope.comparing.compare import compare as compare_runs
        from anchorscope.recipe import named_folder

    allowed = tuple(part for text in allow or () for part in text.split(",") if part)
    with user_errors(stopped=_STOPPED):
        made = compare_runs(
            runs,
            out=named_folder(out),
            relative_depth=relative_depth,
            assignment=assignment,
            order=order,
            allow=allowed,
            names=() if names is None else names,
            claims=claims,
            progress=listener(quiet),
        )
    figures, report = Path(out) / "figures", Path(out) / "report.html"
    chart = figures / ("question_share.png" if (figures / "question_share.png").exists() else "delta_p.png")
    differences = made.manifest["differences"]
    for one in differences:
        say(f"warning: {one['text']}", quiet)
    if as_json:
        shown = ("run", "folder", "model", "datasets", "used")
        emit_json(
            {
                "out": str(out),
                "answer": made.manifest["answer"],
                "chart": str(chart),
                "report": str(report),
                "runs": [{name: one[name] for name in shown} for one in made.manifest["runs"]],
                "differences": differences,
                "readings": made.observations,
            }
        )
    elif not quiet:
        say("\n".join([*made.manifest["answer"], f"chart:  {chart}", f"report: {report}"]))
