"""`anchorscope validate` and `anchorscope bench`: how well experiments find planted pathways, and how fast."""

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

from anchorscope.bench.options import Options, refuse_no_folder
from anchorscope.bench.options import about as about_bench
from anchorscope.catalogue import RATED
from anchorscope.cli.help import (
    AsJson,
    Executor,
    Quiet,
    Workers,
    in_panel,
    output,
    parameter,
    running,
    with_options,
)
from anchorscope.cli.terminal import (
    emit_json,
    emit_text,
    listener,
    loading,
    user_errors,
)
from anchorscope.errors import UserError, shortened
from anchorscope.execute.choose import choose
from anchorscope.json_text import to_json
from anchorscope.options import split_list
from anchorscope.recipe import LARGEST_SEED, MOST_RESAMPLES, about, named_folder
from anchorscope.screen import say

EXAMPLES = {
    "validate": (
        ("everything, into runs/validate", "anchorscope validate"),
        (
            "a quick look",
            "anchorscope validate --items 240 --worlds half --world-items 360 --replicas 2",
        ),
    ),
    "bench": (
        ("everything that is installed, on the embedded model", "anchorscope bench"),
        (
            "one work, on random weights",
            "anchorscope bench --work knockout --model shape:llama-3.2-1b",
        ),
    ),
}
_planted, _stats = in_panel("What is planted and rated"), in_panel("Statistics")
_MOST = 100_000  # items of a world, which are all in memory with their states
_FEWEST = 120  # items of a world: every half, fold and inner fold needs true and false ones of every relation


def validate(
    out: Annotated[
        str, output(help="The folder for the run, the tables and the page.")
    ] = "runs/validate",
    items: Annotated[
        int, _planted(help="Planted items.", min=120, max=1_000_000)
    ] = 1200,
    evidence: Annotated[
        str,
        _planted(
            help=f"Which experiments to rate: names with commas, or all: {', '.join(RATED)}."
        ),
    ] = "all",
    seed: Annotated[
        int,
        _stats(help="Seed of the items and of every draw.", min=0, max=LARGEST_SEED),
    ] = 0,
    bootstrap: Annotated[
        int,
        _stats(help="Resamples behind every interval.", min=100, max=MOST_RESAMPLES),
    ] = 2000,
    worlds: Annotated[
        str, _planted(help="Which worlds with known parts: names with commas, or all.")
    ] = "all",
    world_items: Annotated[
        str, _planted(help="Numbers of items in these worlds, with commas.")
    ] = "360,1000",
    replicas: Annotated[
        int | None,
        _planted(
            help="Replicas of every world. Default: a few (3 of 1000 items).",
            min=1,
            max=10_000,
        ),
    ] = None,
    device: Annotated[str, running(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[
        int | None, running(help=about("threads"), min=1, max=1024)
    ] = None,
    fresh: Annotated[
        bool,
        running(
            "--fresh/--resume",
            help="Start the folder over, or go on where a run stopped (default).",
        ),
    ] = False,
    executor: Executor = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    sizes, choice, folder = (
        _read_sizes(world_items),
        choose(executor, workers),
        named_folder(out),
    )

    with loading("torch", quiet):
        from anchorscope.validation.validate import WORLDS, Options, read_summary
        from anchorscope.validation.validate import validate as run_validation

    chosen = tuple(WORLDS) if worlds == "all" else split_list(worlds)
    if not chosen or not set(chosen) <= set(WORLDS):
        raise UserError(
            f"Worlds {worlds!r}: allowed are {', '.join(WORLDS)}, with commas, or all."
        )
    options = Options(
        items=items,
        evidence=split_list(evidence),
        seed=seed,
        bootstrap=bootstrap,
        device=device,
        replicas=replicas,
        threads=threads,
        worlds=chosen,
        world_items=sizes,
        choice=choice,
    )
    say(f"anchorscope: validating on {items} planted items into {folder}", quiet)
    run_validation(folder, options, fresh=fresh, progress=listener(quiet))
    summary = read_summary(folder)
    if as_json:
        return emit_json(summary)
    say("\n".join([*summary["summary"], f"page: {folder / 'validation.html'}"]), quiet)


def _read_sizes(text: str) -> tuple[int, ...]:
    sizes = split_list(text)
    if not sizes or not all(
        size.isdecimal() and len(size) < 10 and _FEWEST <= int(size) <= _MOST
        for size in sizes
    ):
        raise UserError(
            f"World items {shortened(text)}: allowed are whole numbers from {_FEWEST} to {_MOST:,}, with commas, as in "
            f"300,1000,3000."
        )
    return tuple(sorted(set(map(int, sizes))))


def _parameter(name: str, kind: Any) -> Parameter:
    """A field of the benchmark's options as an option of the command."""
    option = in_panel("What is measured")(
        f"--{name.replace('_', '-')}", help=about_bench(name), show_default=False
    )
    return parameter(
        name, (str if get_origin(kind) is tuple else kind) | None, None, option
    )


@with_options(_parameter(*field) for field in get_type_hints(Options).items())
def bench(
    out: Annotated[
        Path | None, output(help="Also write the JSON object to this file.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    settled = Options(
        **given
        | {name: split_list(given[name]) for name in ("work", "ways") if name in given}
    )
    refuse_no_folder(out)

    with loading("torch", quiet):
        from anchorscope.bench.session import render, run_benchmark

    with user_errors(
        stopped="stopped; nothing was measured to the end, the same command starts again"
    ):
        record = run_benchmark(settled, lambda text: say(text, quiet))
    if out is not None:
        out.write_text(to_json(record) + "\n", encoding="utf-8")
    if as_json:
        return emit_json(record)
    emit_text(render(record))
