"""`anchorscope run`: the main job. Options given here win over those of a recipe file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorscope.catalogue import EVIDENCE, KEEP
from anchorscope.cli.completion import one_of, several_of
from anchorscope.cli.executor_options import DevicesPerWorker, Executor, Lease, Mixed, WorkersOption
from anchorscope.cli.help_texts import OUTPUT, Quiet, in_panel
from anchorscope.cli.terminal import console, emit_json, emit_text, listener, loading, say
from anchorscope.datasets.catalog import BUILT_IN, WITH_FILE, split_names, split_specs
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.models.embedded import EMBEDDED
from anchorscope.models.sources import SHAPES
from anchorscope.prepare import check_inputs
from anchorscope.recipe import CHOICES, Recipe, about, make_recipe, named_folder, read_recipe

if TYPE_CHECKING:
    from anchorscope.artefacts.finished import FinishedRun

_DATA, _MEASURE, _STATS = "Model and data", "Measurement", "Statistics"
_EVIDENCE, _RUNNING = "Evidence", "Running"
_running, _output = in_panel(_RUNNING), in_panel(OUTPUT)
_COMPLETIONS = {
    **{name: one_of(words) for name, words in CHOICES.items()},
    "model": one_of((*EMBEDDED, *(f"shape:{name}" for name in SHAPES))),
    "device": one_of(("auto", "cpu", "cuda", "balanced")),
    "datasets": several_of((*BUILT_IN, *WITH_FILE, "file:")),
    "evidence": several_of((*EVIDENCE, "all")),
    "keep": several_of(KEEP),
}
EXAMPLES = (
    (
        "the demo: an embedded model, 500 questions, three and a half minutes on two cores",
        "anchorscope run --limit 500 --out runs/demo",
    ),
    ("your model on your questions", "anchorscope run --model OWNER/NAME --dataset file:questions.csv --out runs/mine"),
    ("what it would do, without doing it", "anchorscope run --dataset file:questions.csv --dry-run"),
    (
        "further experiments into a run that is there; nothing is done twice",
        "anchorscope run runs/demo/recipe.toml --out runs/demo --evidence matched,wordings",
    ),
)
"""What people type first, and what for."""


def _option(name: str, panel: str, more: str = "") -> Any:
    option = "dataset" if name == "datasets" else name.replace("_", "-")
    return typer.Option(
        f"--{option}",
        help=f"{about(name)} {more}".rstrip(),
        show_default=False,
        rich_help_panel=panel,
        autocompletion=_COMPLETIONS.get(name),
    )


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe file (.toml); without one, the options and their defaults.")
    ] = None,
    model: Annotated[str | None, _option("model", _DATA)] = None,
    dataset: Annotated[
        list[str] | None, _option("datasets", _DATA, "Several with commas, or repeat the option.")
    ] = None,
    columns: Annotated[list[str] | None, _option("columns", _DATA)] = None,
    limit: Annotated[int | None, _option("limit", _DATA)] = None,
    prompt: Annotated[str | None, _option("prompt", _DATA)] = None,
    max_new_tokens: Annotated[int | None, _option("max_new_tokens", _DATA)] = None,
    yes_no: Annotated[str | None, _option("yes_no", _DATA)] = None,
    on_bad_row: Annotated[str | None, _option("on_bad_row", _DATA)] = None,
    large_files: Annotated[bool | None, _option("large_files", _DATA)] = None,
    site: Annotated[str | None, _option("site", _MEASURE)] = None,
    position: Annotated[str | None, _option("position", _MEASURE)] = None,
    edges: Annotated[str | None, _option("edges", _MEASURE)] = None,
    exact_tokens: Annotated[str | None, _option("exact_tokens", _MEASURE)] = None,
    random_cuts: Annotated[int | None, _option("random_cuts", _MEASURE)] = None,
    directions: Annotated[int | None, _option("directions", _MEASURE)] = None,
    balance: Annotated[str | None, _option("balance", _STATS)] = None,
    group_by: Annotated[str | None, _option("group_by", _STATS)] = None,
    max_per_class: Annotated[int | None, _option("max_per_class", _STATS)] = None,
    folds: Annotated[int | None, _option("folds", _STATS)] = None,
    bootstrap: Annotated[int | None, _option("bootstrap", _STATS)] = None,
    seed: Annotated[int | None, _option("seed", _STATS)] = None,
    evidence: Annotated[
        list[str] | None, _option("evidence", _EVIDENCE, f"Names with commas, or all: {', '.join(EVIDENCE)}.")
    ] = None,
    evidence_items: Annotated[int | None, _option("evidence_items", _EVIDENCE)] = None,
    window: Annotated[int | None, _option("window", _EVIDENCE)] = None,
    random_weights: Annotated[bool | None, _option("random_weights", _EVIDENCE)] = None,
    device: Annotated[str | None, _option("device", _RUNNING)] = None,
    dtype: Annotated[str | None, _option("dtype", _RUNNING)] = None,
    batch_tokens: Annotated[int | None, _option("batch_tokens", _RUNNING)] = None,
    threads: Annotated[int | None, _option("threads", _RUNNING)] = None,
    executor: Executor = "local",
    workers: WorkersOption = None,
    lease: Lease = None,
    mixed: Mixed = False,
    devices_per_worker: DevicesPerWorker = None,
    dry_run: Annotated[
        bool, _running("--dry-run", help="Show what the model would see and what would be run; run nothing.")
    ] = False,
    fresh: Annotated[
        bool, _running("--fresh/--resume", help="Start the folder over, or go on where a run stopped (default).")
    ] = False,
    trust_remote_code: Annotated[bool | None, _option("trust_remote_code", _RUNNING)] = None,
    allow_random_weights: Annotated[bool | None, _option("allow_random_weights", _RUNNING)] = None,
    out: Annotated[str | None, _output(help="The run folder. Default: runs/MODEL-DATASETS.")] = None,
    keep: Annotated[list[str] | None, _option("keep", OUTPUT, "Names with commas.")] = None,
    keep_layers: Annotated[str | None, _option("keep_layers", OUTPUT)] = None,
    report: Annotated[bool | None, _output("--report/--no-report", show_default=False, help=about("report"))] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, _output("--json", help="The findings as one JSON object on standard output.")] = False,
) -> None:
    """Measure where a model's sense of truth comes from: ask, label, probe, cut the key words, draw what is lost."""
    given = {name: value for name, value in locals().items() if name in Recipe.model_fields and value is not None}
    written = read_recipe(recipe) if recipe is not None else {}
    if written.get("trust_remote_code") and not trust_remote_code:  # a recipe may come from anybody
        raise UserError(
            f"Recipe {str(recipe)!r} lets code run that comes with the model; add --trust-remote-code if you trust the "
            f"model's authors, or take trust_remote_code out of the recipe."
        )
    options = {**written, **given}
    for name, texts in (("datasets", dataset), ("columns", columns), ("evidence", evidence), ("keep", keep)):
        if texts:
            options[name] = split_specs(texts) if name == "datasets" else split_names(texts)
    settled = make_recipe(options)
    choice = choose(executor, workers, lease, mixed, devices_per_worker)
    if dry_run:
        return _show_preview(settled, as_json, quiet)
    folder = _default_folder(settled) if out is None else named_folder(out)
    if not quiet:
        say(f"anchorscope: {settled.model} on {', '.join(settled.datasets)} into {folder}")

    check_inputs(settled, choice.kind == "ray")
    with loading("torch", quiet):
        from anchorscope.artefacts.finished import open_finished
        from anchorscope.pipeline import run_recipe

    run_recipe(settled, folder, fresh=fresh, progress=listener(quiet), choice=choice)
    finished = open_finished(folder, checked=False)  # it was written just now
    if as_json:
        emit_json(_record(finished))
    elif not quiet:
        _tell(finished)


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


def _default_folder(recipe: Recipe) -> Path:
    from anchorscope.datasets.catalog import parse_spec

    names = "-".join(parse_spec(text).name for text in recipe.datasets)
    shape = recipe.model.removeprefix("shape:").replace("/", "-") if recipe.model.startswith("shape:") else ""
    return Path("runs") / f"{shape or Path(recipe.model).resolve().name}-{names}"
