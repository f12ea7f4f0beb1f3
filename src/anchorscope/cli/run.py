"""`anchorscope run`: the main job. Options given here win over those of a recipe file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from anchorscope.catalogue import EVIDENCE
from anchorscope.cli.terminal import emit_json, listener, say
from anchorscope.recipe import CHOICES, Recipe, make_recipe, named_folder, read_recipe


def _about(name: str) -> str:
    """An option's help: the recipe's own words, the choices and the default."""
    field = Recipe.model_fields[name]
    text = str(field.description)
    if name in CHOICES:
        text += f" One of: {', '.join(CHOICES[name])}."
    return text if field.default in (None, ()) else f"{text} Default: {_shown(field.default)}."


def _shown(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _option(name: str) -> Any:
    return typer.Option(f"--{name.replace('_', '-')}", help=_about(name), show_default=False)


def run(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe file (.toml); without one, the options and their defaults.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="The run folder. Default: runs/MODEL-DATASETS.")] = None,
    model: Annotated[str | None, _option("model")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help=f"{_about('datasets')} Several with commas, or repeat the option.")
    ] = None,
    columns: Annotated[list[str] | None, _option("columns")] = None,
    limit: Annotated[int | None, _option("limit")] = None,
    site: Annotated[str | None, _option("site")] = None,
    position: Annotated[str | None, _option("position")] = None,
    edges: Annotated[str | None, _option("edges")] = None,
    balance: Annotated[str | None, _option("balance")] = None,
    group_by: Annotated[str | None, _option("group_by")] = None,
    exact_tokens: Annotated[str | None, _option("exact_tokens")] = None,
    random_cuts: Annotated[int | None, _option("random_cuts")] = None,
    directions: Annotated[int | None, _option("directions")] = None,
    random_weights: Annotated[bool | None, _option("random_weights")] = None,
    evidence: Annotated[
        list[str] | None, typer.Option(
            help=f"{_about('evidence')} Names with commas, or all: {', '.join(EVIDENCE)}.", show_default=False
        ),
    ] = None,
    evidence_items: Annotated[int | None, _option("evidence_items")] = None,
    window: Annotated[int | None, _option("window")] = None,
    prompt: Annotated[str | None, _option("prompt")] = None,
    yes_no: Annotated[str | None, _option("yes_no")] = None,
    on_bad_row: Annotated[str | None, _option("on_bad_row")] = None,
    seed: Annotated[int | None, _option("seed")] = None,
    device: Annotated[str | None, _option("device")] = None,
    dtype: Annotated[str | None, _option("dtype")] = None,
    batch_tokens: Annotated[int | None, _option("batch_tokens")] = None,
    max_new_tokens: Annotated[int | None, _option("max_new_tokens")] = None,
    max_per_class: Annotated[int | None, _option("max_per_class")] = None,
    folds: Annotated[int | None, _option("folds")] = None,
    bootstrap: Annotated[int | None, _option("bootstrap")] = None,
    keep: Annotated[list[str] | None, _option("keep")] = None,
    keep_layers: Annotated[str | None, _option("keep_layers")] = None,
    trust_remote_code: Annotated[bool | None, _option("trust_remote_code")] = None,
    allow_random_weights: Annotated[bool | None, _option("allow_random_weights")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the model would see and what would be run; run nothing.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="Start the folder over, or go on where a run stopped (default).")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Answer, label, probe, cut, measure and draw: the ΔP chart of a model on question sets, with its controls."""
    given = {name: value for name, value in locals().items() if name in Recipe.model_fields and value is not None}
    options = {**(read_recipe(recipe) if recipe is not None else {}), **given}
    for name, texts in (("datasets", dataset), ("columns", columns), ("evidence", evidence), ("keep", keep)):
        if texts:
            options[name] = tuple(part for text in texts for part in text.split(",") if part)
    settled = make_recipe(options)
    if dry_run:
        return _show_preview(settled, as_json)
    folder = _default_folder(settled) if out is None else named_folder(out)
    if not quiet:
        say(f"anchorscope: {settled.model} on {', '.join(settled.datasets)} into {folder}")

    from anchorscope.artefacts.finished import read_manifest
    from anchorscope.pipeline import run_recipe  # only here: help has to come at once

    run_recipe(settled, folder, fresh=fresh, progress=listener(quiet))
    manifest = read_manifest(folder)
    chart, report = folder / "figures" / "delta_p.png", folder / "report.html"
    if as_json:
        emit_json({"out": str(folder), "chart": str(chart), "report": str(report), "counts": manifest["counts"],
                   "warnings": manifest["warnings"],
                   "seconds": round(sum(one["seconds"] for one in manifest["steps"]), 1)})  # fmt: skip
    elif not quiet:
        for warning in manifest["warnings"]:
            say(f"warning: {warning}")
        say(f"chart:  {chart}\nreport: {report}")


def _show_preview(recipe: Recipe, as_json: bool) -> None:
    from anchorscope.preview import preview_recipe, render_preview  # only here: help has to come at once

    preview = preview_recipe(recipe)
    if as_json:
        emit_json(preview.record())
    else:
        typer.echo(render_preview(preview))


def _default_folder(recipe: Recipe) -> Path:
    from anchorscope.datasets.catalog import parse_spec

    names = "-".join(parse_spec(text).name for text in recipe.datasets)
    shape = recipe.model.removeprefix("shape:").replace("/", "-") if recipe.model.startswith("shape:") else ""
    return Path("runs") / f"{shape or Path(recipe.model).resolve().name}-{names}"
