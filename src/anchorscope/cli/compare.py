"""`anchorscope compare` and `anchorscope study`: several runs side by side, and many runs as one job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.help import (
    AsJson,
    Executor,
    PlainCommand,
    Quiet,
    Workers,
    in_help,
    running,
)
from anchorscope.cli.terminal import (
    INCOMPLETE,
    NOTHING_KEPT,
    emit_json,
    emit_text,
    listener,
    loading,
    user_errors,
)
from anchorscope.comparing.rules import REFUSABLE
from anchorscope.errors import UserError, counted
from anchorscope.execute.choose import choose
from anchorscope.options import split_list
from anchorscope.recipe import about, named_folder
from anchorscope.screen import say

if TYPE_CHECKING:
    from anchorscope.study.grid import Study

EXAMPLES = {
    "study": (
        (
            "all runs, or those missing",
            "anchorscope study run recipes/studies/four-models.toml --out runs/four",
        ),
        ("how far it is", "anchorscope study status --out runs/four"),
    )
}
_ALLOW = f"Differences to flag on the page, not to refuse: names with commas, or all: {', '.join(REFUSABLE)}."


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of finished runs, at least two; with --claims, one.",
        ),
    ],
    out: Annotated[
        str, typer.Option(help="The folder for the chart, the tables and the page.")
    ],
    names: Annotated[
        str | None,
        typer.Option(
            help="A label per run, with commas, in the order of the runs: for example chat,plain."
        ),
    ] = None,
    claims: Annotated[
        bool,
        typer.Option(
            "--claims",
            help="Also check what five earlier written readings of such charts claimed.",
        ),
    ] = False,
    allow: Annotated[list[str] | None, typer.Option(help=_ALLOW)] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    with loading("polars", quiet):
        from anchorscope.comparing.compare import compare as compare_runs

    with user_errors(stopped=NOTHING_KEPT):
        comparison = compare_runs(
            runs,
            out=named_folder(out),
            allow=split_list(",".join(allow or ())),
            names=() if names is None else names,
            claims=claims,
            progress=listener(quiet),
        )
    chart, report, manifest = (
        Path(out) / "figures/delta_p.png",
        Path(out) / "report.html",
        comparison.manifest,
    )
    for difference in manifest["differences"]:
        say(f"warning: {difference['text']}", quiet)
    if as_json:
        shown = ("run", "folder", "model", "datasets", "used")
        emit_json(
            {
                "out": str(out),
                "answer": manifest["answer"],
                "chart": str(chart),
                "report": str(report),
                "runs": [
                    {name: run[name] for name in shown} for run in manifest["runs"]
                ],
                "differences": manifest["differences"],
                "readings": comparison.observations,
            }
        )
    else:
        say(
            "\n".join([*manifest["answer"], f"chart:  {chart}", f"report: {report}"]),
            quiet,
        )


study = typer.Typer()
_File = Annotated[
    Path | None,
    typer.Argument(
        metavar="STUDY",
        help="The study's file (.toml), or its folder.",
        show_default=False,
    ),
]
_Out = Annotated[
    str | None, typer.Option("--out", help="The study's folder.", show_default=False)
]


@study.command("run", cls=PlainCommand, epilog=in_help(EXAMPLES["study"][:1]))
def run_study(
    study: _File = None,
    out: _Out = None,
    trust_remote_code: Annotated[
        bool,
        running(
            "--trust-remote-code",
            help="Let code run that comes with the study's models.",
        ),
    ] = False,
    threads: Annotated[
        int | None,
        running(
            "--threads",
            help=f"{about('threads')} Wins over the study's defaults.",
            show_default=False,
        ),
    ] = None,
    executor: Executor = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a study, or resume it, and compare what is done: finished runs are not repeated, a failed one stops no other.

    Exit codes: 0 all done, 2 a run failed or the study has a mistake, 3 incomplete (run it again), 130 stopped.
    """
    planned, source, folder = _open_study(study, out)
    trusting = [run.name for run in planned.runs if run.recipe.trust_remote_code]
    if trusting and not trust_remote_code:  # a study may come from anybody
        raise UserError(
            f"Study {str(source)!r} lets code run that comes with a model ({trusting[0]}); add --trust-remote-code if "
            f"you trust the models' authors, or take trust_remote_code out of the study."
        )
    planned, choice = planned.with_threads(threads), choose(executor, workers)
    n = len(planned.runs)
    size = f"{counted(n, 'run')} of {counted(len(planned.models), 'model')}"
    say(f"anchorscope: {planned.name}, {size} into {folder}", quiet)

    with loading("torch", quiet):
        from anchorscope.study.runner import run_study
        from anchorscope.study.study_folder import PAGE, status_of

    incomplete = run_study(
        planned,
        source,
        folder,
        lambda line: say(line, quiet),
        lambda: listener(quiet),
        choice,
    )
    page, status = folder / PAGE, status_of(planned, folder)
    is_compared = status.count("done") > 1 and page.is_file()
    report = str(page) if is_compared else None
    if as_json:
        emit_json({**status.record(), "report": report, "incomplete": incomplete})
    else:
        say(status.line + (f"\nreport: {report}" if report else ""), quiet)
    if incomplete:
        name, line = next(iter(incomplete.items()))
        say(f"incomplete: {name}: {line}")
        raise typer.Exit(INCOMPLETE)
    if status.count("done") < n:
        failed = [run for run in status.runs if run.state == "failed"]
        first = (
            f"{len(failed)} of {n} runs failed; the first, {failed[0].name}: {failed[0].error}"
            if failed
            else ""
        )
        say(f"error: {first or status.line}")
        raise typer.Exit(2)


@study.command("status", cls=PlainCommand, epilog=in_help(EXAMPLES["study"][1:]))
def show_status(study: _File = None, out: _Out = None, as_json: AsJson = False) -> None:
    """Show how far every run of a study is, while it runs or after: done, running, failed, stopped, waiting."""
    from anchorscope.study.study_folder import status_of

    planned, _, folder = _open_study(study, out)
    status = status_of(planned, folder)
    if as_json:
        return emit_json(status.record())
    width = max(len(run.name) for run in status.runs)
    emit_text(status.line + ("; a process is working on it" if status.running else ""))
    for run in status.runs:
        steps = ""
        if run.steps and run.state != "done":
            steps = counted(run.steps, "step")
        more = "; ".join(part for part in (steps, run.error or "") if part)
        emit_text(f"  {run.name:<{width}}  {run.state:<7}  {more}".rstrip())


def _open_study(study: Path | None, out: str | None) -> "tuple[Study, Path, Path]":
    """The study, its file and its folder: a folder of one has both."""
    from anchorscope.study.grid import read_study
    from anchorscope.study.study_folder import FILE, study_in

    if study is not None and study.is_dir() and out is None:
        study, out = None, str(study)
    if out is None:
        what = (
            "No study is named"
            if study is None
            else f"{str(study)!r} is not the folder of a study"
        )
        raise UserError(
            f"{what}; name its file and its folder: {study or 'STUDY.toml'} --out DIR"
        )
    folder = named_folder(out)
    if study is None:
        return study_in(folder), folder / FILE, folder
    return read_study(study), study, folder
