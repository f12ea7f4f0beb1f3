"""`anchorscope study`: models × datasets × prompts × seeds as one job; how far it is; the page that compares all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.executor_options import Executor, Mixed, WorkersOption
from anchorscope.cli.help_texts import AsJson, PlainCommand, Quiet, in_help
from anchorscope.cli.terminal import INCOMPLETE, emit_json, emit_text, listener, loading, say
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.recipe import about, named_folder

if TYPE_CHECKING:
    from anchorscope.study.grid import Study
    from anchorscope.study.states import Status

EXAMPLES = (
    (
        "all runs of a study, or what is missing of them",
        "anchorscope study run recipes/studies/four-models.toml --out runs/four",
    ),
    ("how far it is", "anchorscope study status --out runs/four"),
    ("the page that compares all, of what is done so far", "anchorscope study report --out runs/four"),
)
"""What people type first, and what for."""
GROUP = typer.Typer(
    no_args_is_help=True,
    epilog=in_help(EXAMPLES),
    pretty_exceptions_enable=False,
    help="Run models × datasets × prompts × seeds as one job, see how far it is, compare all of it.",
)
_File = Annotated[
    Path | None, typer.Argument(metavar="STUDY", help="The study's file (.toml), or its folder.", show_default=False)
]
_Out = Annotated[str | None, typer.Option("--out", help="The study's folder.", show_default=False)]


@GROUP.command("run", cls=PlainCommand, epilog=in_help(EXAMPLES[:1]))
def run(
    study: _File = None,
    out: _Out = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Let code run that comes with the study's models.", rich_help_panel="Running"
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            help=f"{about('threads')} Wins over the study's defaults.",
            rich_help_panel="Running",
            show_default=False,
        ),
    ] = None,
    executor: Executor = None,
    workers: WorkersOption = None,
    mixed: Mixed = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a study, or go on with it: what is done is not done again, and a run that fails does not stop the others.

    Exit codes: 0 all done, 2 a run failed or the study has a mistake, 3 incomplete (run it again), 130 stopped.
    """
    found, source, folder = _opened(study, out)
    trusting = [one.name for one in found.runs if one.recipe.trust_remote_code]
    if trusting and not trust_remote_code:  # a study may come from anybody
        raise UserError(
            f"Study {str(source)!r} lets code run that comes with a model ({trusting[0]}); add --trust-remote-code if "
            f"you trust the models' authors, or take trust_remote_code out of the study."
        )
    found, choice = found.with_threads(threads), choose(executor, workers, mixed)
    n, models = len(found.runs), len(found.models)
    told = f"{n} run{'s' * (n != 1)} of {models} model{'s' * (models != 1)}"
    say(f"anchorscope: {found.name}, {told} into {folder}", quiet)

    with loading("torch", quiet):
        from anchorscope.study.runner import Listening, run_study

    heard = Listening(lambda line: say(line, quiet), lambda: listener(quiet))
    outcome = run_study(found, source, folder, heard, choice)
    page = folder / "report.html"
    if as_json:
        emit_json(
            {
                **outcome.status.record(),
                "report": str(page) if page.is_file() else None,
                "incomplete": outcome.incomplete,
            }
        )
    else:
        say(outcome.status.line, quiet)
        if page.is_file():
            say(f"report: {page}", quiet)
    if outcome.exit_code == INCOMPLETE:
        name, line = next(iter(outcome.incomplete.items()))
        say(f"incomplete: {name}: {line}")
    elif outcome.exit_code:
        failed = [one for one in outcome.status.runs if one.state == "failed"]
        first = f"{len(failed)} of {n} runs failed; the first, {failed[0].name}: {failed[0].error}" if failed else ""
        say(f"error: {first or outcome.status.line}")
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


@GROUP.command("status", cls=PlainCommand, epilog=in_help(EXAMPLES[1:2]))
def status(study: _File = None, out: _Out = None, as_json: AsJson = False) -> None:
    """Show how far every run of a study is, while it runs or after: done, running, failed, stopped, waiting."""
    from anchorscope.study.states import status_of

    found, _, folder = _opened(study, out)
    told = status_of(found, folder)
    if as_json:
        emit_json(told.record())
    else:
        emit_text("\n".join(_lines(told)))


@GROUP.command("report", cls=PlainCommand, epilog=in_help(EXAMPLES[2:]))
def report(study: _File = None, out: _Out = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Write the page that compares all runs that are done."""
    found, source, folder = _opened(study, out)

    with loading("polars", quiet):
        from anchorscope.study.page import report_study

    page = report_study(found, source, folder, listener(quiet))
    if as_json:
        emit_json({"report": str(page), "summary": str(folder / "summary.csv")})
    else:
        say(f"report: {page}", quiet)


def _opened(study: Path | None, out: str | None) -> "tuple[Study, Path, Path]":
    """The study, its file and its folder: a folder of one has both."""
    from anchorscope.study.grid import read_study
    from anchorscope.study.study_folder import FILE, study_in

    if study is not None and study.is_dir() and out is None:
        study, out = None, str(study)
    if out is None:
        what = "No study is named" if study is None else f"{str(study)!r} is not the folder of a study"
        raise UserError(f"{what}; name its file and its folder: {study or 'STUDY.toml'} --out DIR")
    folder = named_folder(out)
    if study is None:
        return study_in(folder), folder / FILE, folder
    return read_study(study), study, folder


def _lines(told: "Status") -> list[str]:
    width = max(len(run.name) for run in told.runs)
    lines = [told.line + ("; a process works on it" if told.running else "")]
    for run in told.runs:
        steps = f"{run.steps} step{'s' * (run.steps != 1)}" if run.steps and run.state != "done" else ""
        more = "; ".join(part for part in (steps, run.error or "") if part)
        lines.append(f"  {run.name:<{width}}  {run.state:<7}  {more}".rstrip())
    return lines
