"""`anchorscope bench`: speed on this machine against other ways to do the same work."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorscope.bench.options import IMPLEMENTATIONS, WORK, Options, about, refuse_no_folder, split
from anchorscope.cli.completion import one_of, several_of
from anchorscope.cli.help_texts import OUTPUT, AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, emit_text, loading, say, user_errors
from anchorscope.models.embedded import EMBEDDED

EXAMPLES = (
    ("everything that is installed, on the embedded model", "anchorscope bench"),
    ("one work, on random weights of a larger shape", "anchorscope bench --work knockout --model shape:llama-3.2-1b"),
    ("for programs", "anchorscope bench --json --out bench.json"),
)
"""What people type first, and what for."""
_PANELS = {
    "What is measured": ("work", "ways", "items", "probe_items", "repeats", "seconds"),
    "Model and items": ("model", "dataset", "shared", "own", "new_tokens", "seed"),
    "Running": ("device", "dtype"),
}
_output = in_panel(OUTPUT)
_TO_CHOOSE = {"work": several_of(WORK), "ways": several_of(IMPLEMENTATIONS), "model": one_of(EMBEDDED)}
_STOPPED = "stopped; nothing was measured to the end, the same command starts again"


def _option(name: str) -> Any:
    panel = next(panel for panel, names in _PANELS.items() if name in names)
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=about(name),
        show_default=False,
        rich_help_panel=panel,
        autocompletion=_TO_CHOOSE.get(name),
    )


def bench(
    work: Annotated[str | None, _option("work")] = None,
    ways: Annotated[str | None, _option("ways")] = None,
    model: Annotated[str | None, _option("model")] = None,
    device: Annotated[str | None, _option("device")] = None,
    dtype: Annotated[str | None, _option("dtype")] = None,
    items: Annotated[int | None, _option("items")] = None,
    probe_items: Annotated[int | None, _option("probe_items")] = None,
    repeats: Annotated[int | None, _option("repeats")] = None,
    seconds: Annotated[float | None, _option("seconds")] = None,
    shared: Annotated[int | None, _option("shared")] = None,
    own: Annotated[int | None, _option("own")] = None,
    dataset: Annotated[str | None, _option("dataset")] = None,
    new_tokens: Annotated[int | None, _option("new_tokens")] = None,
    seed: Annotated[int | None, _option("seed")] = None,
    out: Annotated[Path | None, _output(help="Also write the JSON object to this file.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure the same work done in several ways, check that they agree, and print a table."""
    given = {name: value for name, value in locals().items() if name in Options.__dataclass_fields__}
    named = {name: split(given[name]) for name in ("work", "ways") if given[name] is not None}
    options = Options(**{**{name: value for name, value in given.items() if value is not None}, **named})
    refuse_no_folder(out)

    with loading("torch", quiet):
        from anchorscope.bench.session import render, run_benchmark

    with user_errors(stopped=_STOPPED):
        record = run_benchmark(options, lambda text: say(text, quiet))
    if out is not None:
        out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    if as_json:
        return emit_json(record)
    emit_text(render(record))
