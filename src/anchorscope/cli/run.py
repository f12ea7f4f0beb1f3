"""`anchorscope run`: the main job. Its options come from the fields of `Recipe`, and override a recipe file's."""

import shlex
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from anchorscope.cli.help import (
    ALL,
    Executor,
    PlainCommand,
    Quiet,
    Workers,
    output,
    parameter,
    running,
    with_options,
)
from anchorscope.cli.terminal import emit_json, emit_text, listener, loading
from anchorscope.datasets.catalog import split_specs
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.options import PANELS, option_of, split_list
from anchorscope.prepare import check_inputs, default_folder
from anchorscope.recipe import Recipe, about, make_recipe, named_folder, read_recipe
from anchorscope.screen import card_text, console, say

if TYPE_CHECKING:
    from anchorscope.finished import FinishedRun

EXAMPLES = {
    "run": (
        (
            "the demo: an embedded model, a few minutes on two cores",
            "anchorscope run --limit 500 --out runs/demo",
        ),
        (
            "your model on your questions",
            "anchorscope run --model OWNER/NAME --dataset questions.csv --out runs/mine",
        ),
        (
            "what it would do, without doing it",
            "anchorscope run --dataset questions.csv --dry-run",
        ),
        (
            "one more experiment",
            "anchorscope run runs/demo/recipe.toml --out runs/demo --evidence matched",
        ),
    )
}


def _show_every_option(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[ALL] = True
        emit_text(context.get_help())
        raise typer.Exit


def recipe_parameter(name: str) -> Parameter:
    """A recipe option as an option of a command."""
    field = Recipe.model_fields[name]
    kind: Any = field.annotation
    is_list = get_origin(kind) is tuple
    typed = "dataset" if name == "datasets" else name  # one is given at a time
    flag, help_text = f"--{typed.replace('_', '-')}", about(name)
    if is_list:
        kind, help_text = (
            list[str],
            f"{help_text} Several with commas, or repeat the option.",
        )
    elif kind is bool and field.default is True:
        flag = f"{flag}/--no-{flag[2:]}"
    shown = typer.Option(
        flag,
        help=help_text,
        show_default=False,
        rich_help_panel=option_of(field).panel,
        metavar=f"{typed.upper()},..." if is_list else None,
    )
    return parameter(name, kind | None, None, shown)


RECIPE_FIELDS = sorted(
    Recipe.model_fields,
    key=lambda name: PANELS.index(option_of(Recipe.model_fields[name]).panel),
)


@with_options(map(recipe_parameter, RECIPE_FIELDS), after=1)
def run(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help="A recipe file (.toml); without one, the options and their defaults."
        ),
    ] = None,
    executor: Executor = None,
    workers: Workers = None,
    dry_run: Annotated[
        bool,
        running(
            "--dry-run",
            help="Show what the model would see and what would be run; run nothing.",
        ),
    ] = False,
    fresh: Annotated[
        bool,
        running(
            "--fresh",
            help="Start the folder over; else a run is resumed where it stopped.",
        ),
    ] = False,
    out: Annotated[
        str | None, output(help="The run folder. Default: runs/MODEL-DATASETS.")
    ] = None,
    quiet: Quiet = False,
    as_json: Annotated[
        bool,
        output("--json", help="The findings as one JSON object on standard output."),
    ] = False,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            is_eager=True,
            callback=_show_every_option,
            help="Show every option.",
        ),
    ] = False,
    **options: Any,
) -> None:
    choice, given = choose(executor, workers), given_options(options)
    written = {} if recipe is None else read_recipe(recipe)
    if written.get("trust_remote_code") and not given.get(
        "trust_remote_code"
    ):  # a recipe may come from anybody
        raise UserError(
            f"Recipe {str(recipe)!r} lets code run that comes with the model; add --trust-remote-code if you trust the "
            f"model's authors, or take trust_remote_code out of the recipe."
        )
    settled = make_recipe(written | given)
    if dry_run:
        return _show_preview(settled, as_json, quiet)
    folder = default_folder(settled) if out is None else named_folder(out)
    say(
        f"anchorscope: {settled.model} on {', '.join(settled.datasets)} into {folder}",
        quiet,
    )

    check_inputs(settled, choice.kind == "ray")
    with loading("torch", quiet):
        from anchorscope.finished import open_finished
        from anchorscope.pipeline import run_recipe

    run_recipe(settled, folder, fresh=fresh, progress=listener(quiet), choice=choice)
    finished = open_finished(folder, checked=False)  # it was written just now
    if as_json:
        emit_json(_record(finished))
    elif not quiet:
        _report(finished)


def _record(run: "FinishedRun") -> dict[str, Any]:
    """The findings for programs; of the readings, those that are not about groups."""
    manifest, is_drawn = run.manifest, run.recipe.report
    return {
        "out": str(run.path),
        "chart": str(run.path / "figures/delta_p.png") if is_drawn else None,
        "report": str(run.path / "report.html") if is_drawn else None,
        "answer": run.card.record(),
        "observations": [
            row
            for row in run.observations
            if not row.get("of_groups") and row.get("dataset")
        ],
        "counts": manifest["counts"],
        "warnings": manifest["warnings"],
        "seconds": round(sum(step["seconds"] for step in manifest["steps"]), 1),
    }


def _report(run: "FinishedRun") -> None:
    """The answer card, then the files to open."""
    console.print()
    console.print(card_text(run.card, console.width), soft_wrap=True, highlight=False)
    for warning in run.manifest["warnings"]:
        if warning not in run.card.warnings:
            say(f"warning: {warning}")
    if run.recipe.report:
        say(f"\nreport:  {run.path / 'report.html'}\nfigures: {run.path / 'figures'}")
    else:
        say(
            f"\ntables:  {run.path}\nThe same command with --report adds the page and the figures."
        )
    say(
        f"all runs in the browser: anchorscope view {shlex.quote(str(run.path.parent))}"
    )


def _show_preview(recipe: Recipe, as_json: bool, quiet: bool) -> None:
    check_inputs(recipe, dry=True)
    with loading("torch", quiet):
        from anchorscope.preview import preview_recipe

    preview = preview_recipe(recipe)
    if as_json:
        emit_json(preview)
    else:
        emit_text(render_preview(preview))


def render_preview(preview: dict[str, Any]) -> str:
    """A dry run as plain text: what would be run, then what the model would see."""
    model, datasets = preview["model"], preview["datasets"]
    size = f"{model['parameters']:,} parameters" + (
        ", RANDOM WEIGHTS" if model["random_weights"] else ""
    )
    lines = [
        "What would be run",
        f"  model      {model['name']}: {model['n_layers']} layers of width {model['d_model']}, {size}",
        f"  prompt     {preview['prompt']}; greedy answers of at most {preview['recipe']['max_new_tokens']} tokens",
    ]
    for dataset in datasets:
        counts = dataset["counts"] | {
            name: dataset[name] for name in ("given_answers", "given_labels")
        }
        counted = ", ".join(
            f"{name.replace('_', ' ')} {count:,}"
            for name, count in counts.items()
            if count
        )
        low, middle, high = dataset["own"]
        lines.append(
            f"  dataset    {dataset['name']}: {dataset['questions']:,} questions ({counted}); "
            f"{dataset['shared']} shared tokens, then {low} to {high} own ones (median {middle:g})"
        )
        for title, warning in (
            ("enough?  ", dataset["outlook"]),
            ("too long ", dataset["too_long"]),
        ):
            lines += [f"  {title}  {dataset['name']}: {warning}"] if warning else []
    lines += [
        f"  pass       {name}: {about}" for name, about in preview["passes"].items()
    ]
    lines += [
        f"  {line}"
        for line in (preview["cost"] or {"sentence": ""})["sentence"].splitlines()
    ]
    about_marks = (
        "⟦…⟧ is an exact token of the question (E_Q), ⟪…⟫ one of a given answer (E_A)"
    )
    lines += ["", f"What the model would see: {about_marks}"]
    for dataset in datasets:
        for number, item in enumerate(dataset["items"]):
            lines += _render_item(
                dataset, item, from_token=dataset["shared"] if number else 0
            )
    return "\n".join(
        [*lines, "", "Nothing was run: no weights were loaded and no file was written."]
    )


def _render_item(
    dataset: dict[str, Any], item: dict[str, Any], from_token: int
) -> list[str]:
    """An item from a token on: what all prompts share is shown once."""
    brackets = {"": ("", ""), "question": ("⟦", "⟧"), "answer": ("⟪", "⟫")}
    text = "".join(
        token["text"].join(brackets[token["exact"]])
        for token in item["tokens"][from_token:]
    )
    from anchorscope.spans.question_spans import (
        RULES,
    )  # only here: help has to come at once

    about = f"key words by {RULES[item['rule']]}; {dataset['shared']} shared and {item['own']} own tokens"
    spans = [f"{name} tokens {start}–{end - 1}" for name, start, end in item["sources"]]
    has_sources = any(
        name not in ("question", "answer") for name, _, _ in item["sources"]
    )
    return [
        *("", f"{dataset['name']}, item {item['item_id']} ({about})"),
        *(f"  | {line}" for line in text.split("\n")),
        *(
            f"  reads {name} at token {at} {item['tokens'][at]['text']!r}"
            for name, at in item["reads"].items()
        ),
        *([f"  sources: {', '.join(spans)}"] if has_sources else []),
    ]


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe options that were typed."""
    given = {}
    for name, value in options.items():
        if isinstance(value, list):
            parts = (
                split_specs(value)
                if name == "datasets"
                else split_list(",".join(value))
            )
            value = parts if value else None
        if value is not None:
            given[name] = value
    return given


class RunCommand(PlainCommand):
    """`--help` shows the common options."""

    rare = frozenset(
        {"executor", "workers"}
        | {
            name
            for name, field in Recipe.model_fields.items()
            if not option_of(field).is_common
        }
    )
