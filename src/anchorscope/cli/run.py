"""`anchorscope run`: the main job. Options given here win over those of a recipe file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorscope.cli.executor_options import Executor, Mixed, WorkersOption
from anchorscope.cli.help_texts import PlainCommand, Quiet, in_panel
from anchorscope.cli.recipe_options import add_recipe_options, given_options, rare_options, show_every_option
from anchorscope.cli.terminal import console, emit_json, emit_text, listener, loading, say
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.options import OUTPUT, RUNNING
from anchorscope.prepare import check_inputs, default_folder
from anchorscope.recipe import Recipe, make_recipe, named_folder, read_recipe

if TYPE_CHECKING:
    from anchorscope.finished import FinishedRun

_running, _output = in_panel(RUNNING), in_panel(OUTPUT)
EXAMPLES = (
    (
        "the demo: an embedded model, 500 questions, three and a half minutes on two cores",
        "anchorscope run --limit 500 --out runs/demo",
    ),
    ("your model on your questions", "anchorscope run --model OWNER/NAME --dataset questions.csv --out runs/mine"),
    ("what it would do, without doing it", "anchorscope run --dataset questions.csv --dry-run"),
    (
        "further experiments into a run that is there; nothing is done twice",
        "anchorscope run runs/demo/recipe.toml --out runs/demo --evidence matched,wordings",
    ),
)
"""What people type first, and what for."""


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe file (.toml); without one, the options and their defaults.")
    ] = None,
    executor: Executor = None,
    workers: WorkersOption = None,
    mixed: Mixed = False,
    dry_run: Annotated[
        bool, _running("--dry-run", help="Show what the model would see and what would be run; run nothing.")
    ] = False,
    fresh: Annotated[
        bool, _running("--fresh", help="Start the folder over; else a run is resumed where it stopped.")
    ] = False,
    out: Annotated[str | None, _output(help="The run folder. Default: runs/MODEL-DATASETS.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, _output("--json", help="The findings as one JSON object on standard output.")] = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", is_eager=True, callback=show_every_option, help="Show every option.")
    ] = False,
    **options: Any,
) -> None:
    """Measure where a model's sense of truth comes from: ask, label, probe, cut the key words, draw what is lost."""
    given = given_options(options)
    written = {} if recipe is None else read_recipe(recipe)
    if written.get("trust_remote_code") and not given.get("trust_remote_code"):  # a recipe may come from anybody
        raise UserError(
            f"Recipe {str(recipe)!r} lets code run that comes with the model; add --trust-remote-code if you trust the "
            f"model's authors, or take trust_remote_code out of the recipe."
        )
    settled = make_recipe(written | given)
    choice = choose(executor, workers, mixed)
    if dry_run:
        return _show_preview(settled, as_json, quiet)
    folder = default_folder(settled) if out is None else named_folder(out)
    if not quiet:
        say(f"anchorscope: {settled.model} on {', '.join(settled.datasets)} into {folder}")

    check_inputs(settled, choice.kind == "ray")
    with loading("torch", quiet):
        from anchorscope.finished import open_finished
        from anchorscope.pipeline import run_recipe

    run_recipe(settled, folder, fresh=fresh, progress=listener(quiet), choice=choice)
    finished = open_finished(folder, checked=False)  # it was written just now
    if as_json:
        emit_json(_record(finished))
    elif not quiet:
        _tell(finished)


add_recipe_options(run)


class RunCommand(PlainCommand):
    """`--help` shows the common options."""

    rare = rare_options() | {"executor", "workers", "mixed"}


def _places(run: "FinishedRun") -> dict[str, str | None]:
    """The chart and the page, where the run has them."""
    files = {"chart": "figures/delta_p.png", "report": "report.html"}
    return {what: str(run.path / file) if run.recipe.report else None for what, file in files.items()}


def _record(run: "FinishedRun") -> dict[str, Any]:
    """The findings of a run, for programs: the card, the readings that no sorting of items goes into, and places."""
    manifest = run.manifest
    return {
        "out": str(run.path),
        **_places(run),
        "answer": run.card.record(),
        "observations": [one for one in run.observations if one.get("assignment") is None and one.get("dataset")],
        "counts": manifest["counts"],
        "warnings": manifest["warnings"],
        "seconds": round(sum(one["seconds"] for one in manifest["steps"]), 1),
    }


def _tell(run: "FinishedRun") -> None:
    """The answer card, then what there is to look at."""
    from anchorscope.screen.card_letters import print_card

    console.print()
    print_card(run.card, console)
    for warning in run.manifest["warnings"]:
        if warning not in run.card.warnings:
            say(f"warning: {warning}")
    if run.recipe.report:
        say(f"\nreport:  {run.path / 'report.html'}\nfigures: {run.path / 'figures'}")
    else:
        say(f"\ntables:  {run.path}\nThe same command with --report adds the page and the figures.")
    say(f"all runs in the browser: anchorscope view {shlex.quote(str(run.path.parent))}")


def _show_preview(recipe: Recipe, as_json: bool, quiet: bool) -> None:
    check_inputs(recipe, dry=True)
    with loading("torch", quiet):
        from anchorscope.preview import preview_recipe, render_preview

    preview = preview_recipe(recipe)
    if as_json:
        emit_json(preview.record())
    else:
        emit_text(render_preview(preview))
