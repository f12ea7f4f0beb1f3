"""`anchorscope validate`: the whole evidence on a model whose pathways are known, and how well each experiment does."""

from dataclasses import fields, replace
from typing import Annotated, Any

from anchorscope.catalogue import RATED
from anchorscope.cli.completion import several_of
from anchorscope.cli.executor_options import Executor, Mixed, WorkersOption
from anchorscope.cli.help_texts import OUTPUT, AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, listener, loading, say
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.recipe import LARGEST_SEED, MOST_RESAMPLES, about, named_folder, shortened

EXAMPLES = (
    ("everything, into runs/validate", "anchorscope validate"),
    ("a quick look", "anchorscope validate --items 240 --worlds one-pathway --world-items 300 --replicas 2"),
)
"""What people type first, and what for."""
_what, _stats, _running = in_panel("What is planted and rated"), in_panel("Statistics"), in_panel("Running")
_output = in_panel(OUTPUT)
_SHARES = "question-true=0.2,question-false=0.2,answer-true=0.2,answer-false=0.2,both-true=0.1,both-false=0.1"

_MOST = 100_000  # items of a world, which are all in memory with their states
_FEWEST = 120  # items of a world: every half, fold and inner fold needs true and false ones of every relation


def validate(
    out: Annotated[str, _output(help="The folder for the run, the tables and the page.")] = "runs/validate",
    items: Annotated[int, _what(help="Planted items.", min=120, max=1_000_000)] = 1200,
    shares: Annotated[
        str | None, _what(help=f"Shares of the six kinds of items; they add up to 1. Default: {_SHARES}.")
    ] = None,
    evidence: Annotated[
        str,
        _what(
            help=f"Which experiments to rate: names with commas, or all: {', '.join(RATED)}.",
            autocompletion=several_of((*RATED, "all")),
        ),
    ] = "all",
    seed: Annotated[int, _stats(help="Seed of the items and of every draw.", min=0, max=LARGEST_SEED)] = 0,
    bootstrap: Annotated[int, _stats(help="Resamples behind every interval.", min=100, max=MOST_RESAMPLES)] = 2000,
    worlds: Annotated[str, _what(help="Which harder worlds: names with commas, or all.")] = "all",
    world_items: Annotated[str, _what(help="Numbers of items in the harder worlds, with commas.")] = "300,1000,3000",
    replicas: Annotated[
        int | None, _what(help="Replicas of every world. Default: a few (12 of 1000 items).", min=1, max=10_000)
    ] = None,
    device: Annotated[str, _running(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int | None, _running(help=about("threads"), min=1, max=1024)] = None,
    executor: Executor = None,
    workers: WorkersOption = None,
    mixed: Mixed = False,
    fresh: Annotated[
        bool, _running("--fresh/--resume", help="Start the folder over, or go on where a run stopped (default).")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every experiment on a model whose pathways were planted, and report how well each one finds them."""
    named = tuple(part for part in evidence.split(",") if part)
    sizes, choice = _read_sizes(world_items), choose(executor, workers, mixed)
    chosen_shares = None if shares is None else _read_shares(shares)
    folder = named_folder(out)

    with loading("torch", quiet):
        from anchorscope.validation.validate import Options, read_summary
        from anchorscope.validation.validate import validate as run_validation

    options = Options(
        items=items,
        evidence=named,
        seed=seed,
        bootstrap=bootstrap,
        device=device,
        world_items=sizes,
        replicas=replicas,
        threads=threads,
        choice=choice,
    )
    if worlds != "all":
        options = replace(options, worlds=_read_worlds(worlds, options.worlds))
    if chosen_shares is not None:
        options = replace(options, shares=chosen_shares)
    if not quiet:
        say(f"anchorscope: validating on {items} planted items into {folder}")
    run_validation(folder, options, fresh=fresh, progress=listener(quiet))
    found = read_summary(folder)
    if as_json:
        emit_json(found)
    elif not quiet:
        for line in found["summary"]:
            say(line)
        say(f"page: {folder / 'validation.html'}")


def _read_worlds(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas."""
    named = tuple(part.strip() for part in text.split(",") if part.strip())
    strange = [name for name in named if name not in known]
    if strange or not named:
        raise UserError(f"Worlds {text!r}: allowed are {', '.join(known)}, with commas, or all.")
    return named


def _read_sizes(text: str) -> tuple[int, ...]:
    """Numbers with commas, in rising order."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or not all(part.isdecimal() and len(part) < 10 and _FEWEST <= int(part) <= _MOST for part in found):
        raise UserError(
            f"World items {shortened(text)}: allowed are whole numbers from {_FEWEST} to {_MOST:,}, with commas, as in "
            f"300,1000,3000."
        )
    return tuple(sorted({int(part) for part in found}))


def _read_shares(text: str) -> Any:  # `Shares`, which is imported where it is needed
    """Shares as they are written: KIND=NUMBER,…; kinds that are not named get nothing."""
    from anchorscope.planted.items import Shares

    names = {one.name.replace("_", "-"): one.name for one in fields(Shares)}
    given = dict.fromkeys(names.values(), 0.0)
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            given[names[name.strip()]] = float(number)
        except (KeyError, ValueError):
            raise UserError(
                f"Shares {text!r}: {part!r} is no KIND=NUMBER; kinds are {', '.join(names)}, as in {_SHARES}."
            ) from None
    return Shares(**given)
