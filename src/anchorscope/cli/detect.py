"""`anchorscope fit`, `detect`, `score`, `detector` and `serve`: make detectors, score answers, export, serve."""

import importlib.util
import os
import shlex
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from anchorscope.catalogue import DETECTORS, MOST_BATCH_TOKENS, OWN_DETECTORS
from anchorscope.cli.help import (
    AsJson,
    Executor,
    PlainCommand,
    Quiet,
    Workers,
    in_help,
    in_panel,
    output,
    running,
    with_options,
)
from anchorscope.cli.inspect import has_screen
from anchorscope.cli.run import RECIPE_FIELDS, given_options, recipe_parameter
from anchorscope.cli.terminal import (
    NOTHING_KEPT,
    emit_json,
    listener,
    loading,
    page,
    print_rows,
    short,
    user_errors,
)
from anchorscope.detectors.bundle_files import (
    DEMO,
    PROBE,
    bundle_files,
    card_rows,
    checked_record,
    refuse_other,
    write_folder,
)
from anchorscope.detectors.verdict import VERDICTS
from anchorscope.errors import UserError
from anchorscope.execute.choose import choose
from anchorscope.models.sources import is_hub_id
from anchorscope.options import DATA, RUNNING, option_of, split_list
from anchorscope.prepare import check_inputs, default_folder
from anchorscope.recipe import Recipe, make_recipe, named_folder
from anchorscope.screen import harmless, say

if TYPE_CHECKING:
    from anchorscope.detecting.detect import Detection
    from anchorscope.detecting.score import Scored

EXAMPLES = {
    "fit": (
        (
            "a detector for your model and your questions",
            "anchorscope fit --model OWNER/NAME --dataset questions.csv --out runs/mine",
        ),
        ("score with it", 'anchorscope score --detector runs/mine "Who wrote Emma?"'),
    ),
    "detect": (
        ("every detector, compared on a finished run", "anchorscope detect runs/demo"),
        (
            "several runs of one model: also on each other's data",
            "anchorscope detect runs/a runs/b --out runs/ab",
        ),
    ),
    "score": (
        (
            "nothing at hand but the embedded model",
            'anchorscope score --demo "Which city is the capital of France?"',
        ),
        (
            "questions; the model answers them",
            'anchorscope score --detector BUNDLE "Who wrote Emma?" "Who is Zola?"',
        ),
        (
            "a file of them",
            "anchorscope score --detector BUNDLE answers.csv --out scored.csv",
        ),
        (
            "one question a line from another program",
            "cat questions.txt | anchorscope score --detector BUNDLE -",
        ),
    ),
    "detector": (
        (
            "what it was trained on, how good it is",
            "anchorscope detector card runs/demo",
        ),
        (
            "one vector for a server that can read states",
            "anchorscope detector export BUNDLE --out probe",
        ),
    ),
    "serve": (
        ("a detector on this machine", "anchorscope serve runs/demo"),
        (
            "for other machines: keys are a must",
            "anchorscope serve BUNDLE --host 0.0.0.0 --keys-file keys.txt",
        ),
    ),
}
NEEDED = ("fastapi", "uvicorn", "prometheus_client")
"""What the extra `serve` brings."""
_what, _door, _limits = (
    in_panel("Detectors and model"),
    in_panel("Who may ask"),
    in_panel("Limits"),
)
_detectors, _stats, _scored = (
    in_panel("Detectors"),
    in_panel("Statistics"),
    in_panel("Detector and answers"),
)
_NAMES = ", ".join(
    [
        *(name for name, entry in OWN_DETECTORS.items() if entry.variant_of is None),
        *DETECTORS.plugins,
    ]
)
_COMPARED_HELP = f"Detectors to compare, names with commas; all where not given: {_NAMES}, and their controls."
_BUNDLES_HELP = (
    "Detectors to save beside the recommended one, names with commas; where not given, those of confidence, probe, "
    "probe+confidence and auto that are compared and that the runs allow."
)
_RISK_HELP = (
    "Shares of false answers among the accepted ones that saved detectors have thresholds for; the first leads. Where "
    "not given, the leading one accepts the best 30% of the training answers, at the risk measured on them."
)
_FOLDS_HELP, _SEEDS_HELP = (
    "Outer folds.",
    "Fold seeds: everything is fitted again for each.",
)
_TOSSES_HELP = "Fits on permuted labels, the control that must give 0.5."
_SHOWN, _LONG = 40, 60


def detect(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Finished runs of one model; a run under another prompt is a target.",
        ),
    ],
    out: Annotated[
        str | None,
        output(
            help="The folder for tables, figures, bundles and the page. Default: RUN/detectors."
        ),
    ] = None,
    detectors: Annotated[str, _detectors(help=_COMPARED_HELP)] = "",
    bundles: Annotated[
        str | None, _detectors(help=_BUNDLES_HELP, show_default=False)
    ] = None,
    folds: Annotated[int, _stats(help=_FOLDS_HELP)] = 5,
    seeds: Annotated[int, _stats(help=_SEEDS_HELP)] = 5,
    tosses: Annotated[int, _stats(help=_TOSSES_HELP)] = 20,
    resamples: Annotated[
        int, _stats(help="Bootstrap resamples behind every interval.")
    ] = 1000,
    risk: Annotated[str, _stats(help=_RISK_HELP)] = "",
    seed: Annotated[int, _stats(help="Seed of every draw.")] = 0,
    device: Annotated[
        str, running(help="auto, cpu, cuda or cuda:N: where detectors are fitted.")
    ] = "auto",
    fresh: Annotated[
        bool,
        running("--fresh", help="Fit again what was fitted from the same runs before."),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    with user_errors(stopped=NOTHING_KEPT):
        with loading("polars", quiet):
            from anchorscope.detecting.inputs import (
                DetectOptions,
                completion,
                missing_keep,
                open_runs,
            )
        numbers = (folds, seeds, tosses, resamples, _read_risks(risk), seed)
        saved = None if bundles is None else split_list(bundles)
        options = DetectOptions(split_list(detectors), saved, *numbers, device, fresh)
        folder = None if out is None else named_folder(out)
        opened = open_runs(runs)  # mistakes are reported before torch is imported
        for run in opened:
            missing = missing_keep(run, options.wanted)
            if quiet and missing and is_hub_id(run.recipe.model):
                say(completion(run, missing))  # before anything is asked of the hub
        with loading("torch", quiet):
            from anchorscope.detecting.detect import detect as detect_runs
        _show_detection(
            detect_runs(runs, out=folder, progress=listener(quiet), **vars(options)),
            quiet,
            as_json,
        )


def _read_risks(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, split_list(text)))
    except ValueError:
        raise UserError(
            f"--risk is {text!r}; give shares between 0 and 1 with commas, like 0.1,0.2."
        ) from None


def _show_detection(made: "Detection", quiet: bool, as_json: bool) -> None:
    """The card: which detector to use, how good every saved one is, what it accepts, what it costs, how to use it."""
    manifest = made.manifest
    for warning in manifest["warnings"]:
        say(f"warning: {warning}", quiet)
    if as_json:
        return emit_json(
            {
                "out": str(made.path),
                **{name: manifest[name] for name in manifest if name != "sha256"},
            }
        )
    if quiet:
        return
    saved, recommended = manifest["saved"], manifest["recommended"]
    rows = [
        (
            "saved detector",
            "AUROC (95% interval, each alone)",
            "called true at risk",
            "extra passes",
        )
    ]
    for name in sorted(saved, key=lambda name: name != recommended):
        areas = [
            f"{value:.3f} [{low:.3f}, {high:.3f}]"
            + f" {dataset}" * (len(saved[name]["auroc"]) > 1)
            for dataset, (value, low, high) in saved[name]["auroc"].items()
        ]
        accepted = _describe_thresholds(saved[name]["thresholds"])
        rows.append(
            (
                name,
                ", ".join(areas) or "not compared",
                accepted,
                str(saved[name]["passes"]),
            )
        )
    say(f"\n{manifest['answer']}")
    say(manifest["trust"] + "\n")
    print_rows(rows if len(rows) > 1 else [("no detector was saved",)])
    say(f"report: {made.path / 'report.html'}")
    if made.recommended is not None:
        say(
            f'score with it: anchorscope score --detector {shlex.quote(str(made.recommended))} "QUESTION"'
        )


def _describe_thresholds(thresholds: Sequence[Mapping[str, Any]]) -> str:
    reached = sorted(
        (row["risk"], row["coverage"])
        for row in thresholds
        if row["probability"] is not None
    )
    if not thresholds:
        return "not measured"
    return (
        ", ".join(f"{coverage:.0%} at {risk:.0%}" for risk, coverage in reached)
        or "none at any risk"
    )


_FIT_FIELDS = [
    name
    for name in RECIPE_FIELDS
    if option_of(Recipe.model_fields[name]).panel in (DATA, RUNNING)
    or name in ("site", "position", "balance", "group_by", "max_per_class", "seed")
]
"""The options of `run` that matter for detectors."""


@with_options(map(recipe_parameter, _FIT_FIELDS))
def fit(
    detectors: Annotated[
        str,
        _detectors(
            help="Detectors to compare, with commas; where not given, those that read one pass."
        ),
    ] = "",
    bundles: Annotated[
        str | None, _detectors(help=_BUNDLES_HELP, show_default=False)
    ] = None,
    risk: Annotated[str, _detectors(help=_RISK_HELP)] = "",
    seeds: Annotated[int, _stats(help=_SEEDS_HELP)] = 5,
    tosses: Annotated[int, _stats(help=_TOSSES_HELP)] = 20,
    executor: Executor = None,
    workers: Workers = None,
    out: Annotated[
        str | None,
        output(
            help="The run folder; detectors are in its folder detectors. Default: runs/MODEL-DATASETS."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    from anchorscope.detecting.inputs import (
        fit_options,
    )  # only here: help has to come at once

    choice, given = choose(executor, workers), given_options(options)
    chosen, of_run = fit_options(
        detectors=split_list(detectors),
        bundles=None if bundles is None else split_list(bundles),
        risks=_read_risks(risk),
        seeds=seeds,
        tosses=tosses,
        device=given.get("device"),
    )
    recipe = make_recipe(of_run | given)
    folder = default_folder(recipe) if out is None else named_folder(out)
    say(
        f"anchorscope: detectors for {recipe.model} from {', '.join(recipe.datasets)} into {folder}",
        quiet,
    )
    check_inputs(recipe, choice.kind == "ray")
    with loading("torch", quiet):
        from anchorscope.detecting.detect import FOLDER
        from anchorscope.detecting.detect import detect as detect_runs
        from anchorscope.pipeline import run_recipe

    progress = listener(quiet)
    FOLDER.refuse_foreign(folder / "detectors")
    run_recipe(
        recipe,
        folder,
        progress=progress,
        choice=choice,
        for_detectors=True,
        fit_seeds=chosen.seeds,
    )
    _show_detection(
        detect_runs([folder], progress=progress, **vars(chosen)), quiet, as_json
    )


@with_options(
    map(recipe_parameter, ("columns", "on_bad_row", "large_files", "device")), after=7
)
def score(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION_OR_FILE",
            help="Questions in quotes; or a question file (with or without a column answer); or a dataset; or - for "
            "standard input, one question a line.",
        ),
    ],
    detector: Annotated[
        Path | None,
        _scored(
            help="The bundle: a folder that anchorscope fit or detect has written."
        ),
    ] = None,
    demo: Annotated[
        bool,
        _scored(
            "--demo", help="The detector that comes along, for the embedded model."
        ),
    ] = False,
    answer: Annotated[
        str | None,
        _scored(help="The answer to a single question; else the model answers."),
    ] = None,
    model: Annotated[
        str | None,
        _scored(help="Where the detector's model is, if not where it was in training."),
    ] = None,
    risk: Annotated[
        float | None,
        _scored(
            help="The largest share of wrong answers among accepted ones; the detector's next smaller one is used."
        ),
    ] = None,
    generate: Annotated[
        bool,
        _scored(
            "--generate/--no-generate",
            help="Whether the model may answer what has no answer.",
        ),
    ] = True,
    out: Annotated[
        Path | None, output(help="Write the rows to FILE.csv, .parquet or .jsonl.")
    ] = None,
    context: Annotated[
        str | None,
        _scored(
            metavar="FILE|TEXT",
            help="A passage before every question that has none; adds context_used.",
        ),
    ] = None,
    dtype: Annotated[
        str, running(help="Precision of the model; auto is that of the training.")
    ] = "auto",
    batch_tokens: Annotated[
        int | None,
        running(
            min=1,
            max=MOST_BATCH_TOKENS,
            help="Tokens run together; found where not given.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    from anchorscope.detecting.score import (
        score as score_all,
    )  # only here: help has to come at once

    if demo == (detector is not None):
        raise UserError(
            "Name a detector with --detector BUNDLE, or take the one that comes along with --demo: one of the two. "
            "anchorscope fit makes one for your model."
        )
    given = given_options(options) | {
        "dtype": dtype,
        "batch_tokens": batch_tokens,
        "out": out,
        "context": context,
    }
    given |= {"answer": answer, "model": model, "generate": generate, "risk": risk}
    # Threads that wait for work sleep: products are small, and spinning cost a third of the CPU time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with user_errors(stopped=NOTHING_KEPT):
        scored = score_all(
            detector or DEMO, what, listener(quiet), loading("torch", quiet), **given
        )
    if as_json:
        return emit_json(scored.record() | ({} if out is None else {"out": str(out)}))
    if not quiet or out is None:
        _show_scores(scored)
    if out is not None:
        say(f"rows: {out}", quiet)
    if scored.bad_rows:
        say(f"warning: {scored.bad_rows:,} bad or empty rows were left out", quiet)


def _describe_chance(probability: float) -> str:
    """62% true; an end of the scale is never claimed."""
    within = min(max(probability, 0.01), 0.99)
    sign = "<" if probability < within else ">" if probability > within else ""
    return f"{sign}{within:.0%} true"


def _describe_use(use: dict[str, Any]) -> str:
    """How much of an answer's probability goes with its passages, how probably it follows them, and which one."""
    if use["context_used"] is None:
        return ""
    which = f" {use['passage']}" if use["passage"] else ""
    likely = (
        ""
        if use["context_probability"] is None
        else f", {use['context_probability']:.0%} likely followed"
    )
    return f"passage{which} {use['context_used']:.0%} used{likely}"


def _describe_verdicts(scored: "Scored") -> str:
    """From which probabilities on an answer is called what."""
    limits = scored.trained.verdict_limits(scored.risk)
    name = f"verdicts of {scored.trained.name}"
    is_false = f'"false" up to {limits.false_to:.0%}'
    if limits.true_from > 1:
        return f'{name}: {is_false}, none is "true", all others are "unsure"'
    is_true = f'"true" from {limits.true_from:.0%} on'
    promise = (
        ""
        if scored.risk is None
        else f" (at most {scored.risk:.0%} of these are wrong)"
    )
    return f'{name}: {is_true}{promise}, {is_false}, "unsure" between'


def _show_scores(scored: "Scored") -> None:
    """The verdicts first; warnings that all answers share once, below."""
    n = len(scored.scores)
    times = Counter(text for row in scored.scores for text in row.warnings)
    shared = [text for text in times if times[text] == n > 1]
    with page(_LONG * 4) as console:
        table = Table.grid(padding=(0, 2, 0, 0))
        for index, row in enumerate(scored.scores[:_SHOWN]):
            table.add_row(
                row.verdict,
                ""
                if row.truth_probability is None
                else _describe_chance(row.truth_probability),
                f"{short(row.question, _LONG)} → {short(row.answer, _LONG) or 'nothing'}",
                _describe_use(scored.uses[index]) if scored.uses else "",
                harmless(
                    "; ".join(text for text in row.warnings if text not in shared)
                ),
            )
        console.print(table)
    if n > _SHOWN:
        say(f"{_SHOWN} of {n:,} items; --out FILE.csv or --json has all")
    say(_describe_verdicts(scored))
    for text in shared:
        say(f"warning: {text}")
    if n > 1:
        counts = Counter(row.verdict for row in scored.scores)
        verdicts = ", ".join(
            f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict]
        )
        say(f"{n:,} answers in {scored.seconds:.1f} s: {verdicts}")


detector = typer.Typer()
_Bundle = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE", help="The folder that anchorscope detect has written."
    ),
]


@detector.command("card", cls=PlainCommand, epilog=in_help(EXAMPLES["detector"][:1]))
def show_card(bundle: _Bundle) -> None:
    """Print the card of a saved detector: data, quality, what it accepts, limits, sha256."""
    print_rows(card_rows(bundle))


@detector.command("export", cls=PlainCommand, epilog=in_help(EXAMPLES["detector"][1:2]))
def export(
    bundle: _Bundle,
    out: Annotated[
        Path, output(help="The folder for probe.safetensors and probe.json.")
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a linear detector as one vector with a JSON card, for servers that can read hidden states."""
    files = bundle_files(bundle)
    checked_record(files, str(bundle))
    refuse_other(out, *PROBE)
    with loading("torch", quiet):
        from anchorscope.detectors.bundle import linear_probe_files, unpack

    with user_errors(stopped=NOTHING_KEPT):
        exported = linear_probe_files(unpack(files, str(bundle)))
        write_folder(out, exported)
    if as_json:
        return emit_json({"out": str(out), "files": list(exported)})
    say(f"exported: {out}", quiet)


def serve(
    bundles: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="BUNDLE",
            help="Folders that anchorscope detect has written, all of one model.",
        ),
    ] = None,
    demo: Annotated[
        bool,
        _what("--demo", help="The embedded model and the detector that comes along."),
    ] = False,
    model: Annotated[
        str | None,
        _what(help="Where the detectors' model is, if not where it was in training."),
    ] = None,
    device: Annotated[
        str, running(help="auto, cpu, cuda, cuda:N or balanced.")
    ] = "auto",
    dtype: Annotated[
        str, running(help="Precision of the model; auto is that of the training.")
    ] = "auto",
    threads: Annotated[
        int | None,
        running(
            min=1,
            max=1024,
            help="Cores for each process's model; 1 on the CPU by default.",
        ),
    ] = None,
    processes: Annotated[
        int,
        running(
            min=1,
            max=64,
            help="Processes that answer on the port, each with its own copy of the model.",
        ),
    ] = 1,
    host: Annotated[
        str,
        _door(help="The address to listen on; any but this machine's own needs keys."),
    ] = "127.0.0.1",
    port: Annotated[
        int, _door(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8642,
    keys_file: Annotated[
        Path | None,
        _door(
            metavar="FILE",
            help="Keys, one a line: requests need one (Authorization: Bearer KEY).",
        ),
    ] = None,
    max_answer_tokens: Annotated[
        int, _limits(min=1, help="Tokens that the model writes for a request.")
    ] = 512,
    queue_seconds: Annotated[
        float,
        _limits(
            min=0.1,
            help="Seconds that a request waits for its turn before it is refused (429).",
        ),
    ] = 3.0,
    batch_tokens: Annotated[
        int | None,
        _limits(
            min=1,
            max=MOST_BATCH_TOKENS,
            help="Tokens run together; found where not given.",
        ),
    ] = None,
    deadline: Annotated[
        float, _limits(min=0.1, help="Seconds until an answer has to be there.")
    ] = 60.0,
    open_browser: Annotated[
        bool, output("--open", help="Open the page in the browser once it is ready.")
    ] = False,
    log_file: Annotated[
        Path | None,
        output(
            metavar="FILE", help="One line per request goes there, not to the terminal."
        ),
    ] = None,
    log_text: Annotated[
        bool, output("--log-text", help="The log may hold what users wrote.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f'anchorscope serve needs {missing[0]}; install it with: pip install "anchorscope[serve]"'
        )
    if bool(bundles) == demo:
        raise UserError(
            "Give the bundles to serve, or --demo for the one that comes along: one of the two."
        )

    for bundle in bundles or ():
        checked_record(bundle_files(bundle), str(bundle))
    from anchorscope.serve.processes import (
        SHARED_PORT,
        address_of,
        end_with_parent,
        listen,
        reserve,
        serve_together,
    )

    def report_ready(record: dict[str, Any]) -> None:
        if as_json:
            emit_json(record)
        else:
            say(
                f"{', '.join(record['detectors'])} on {record['model']}: {record['url']}  (Ctrl-C ends)",
                quiet,
            )
        if open_browser and has_screen():
            webbrowser.open(record["url"])

    if SHARED_PORT:
        port, as_json, open_browser = (
            SHARED_PORT,
            True,
            False,
        )  # the parent reads the object
        threading.Thread(target=end_with_parent, daemon=True).start()
    elif processes > 1:
        with user_errors(stopped="stopped"), reserve(host, port) as bound:
            say(
                f"starting {processes} processes; {address_of(bound)} answers when they are ready",
                quiet or as_json,
            )
            raise SystemExit(serve_together(bound, processes, report_ready))
    with loading("torch", quiet or as_json):
        from anchorscope.serve.guard import Keys, is_loopback, read_keys, refuse_no_keys
        from anchorscope.serve.monitoring import ServiceLog
        from anchorscope.serve.server import ServiceServer, run_server
        from anchorscope.serve.service import DEMO, Limits, make_service

    limits = Limits(
        answer_tokens=max_answer_tokens,
        queue_seconds=queue_seconds,
        batch_tokens=batch_tokens,
        deadline=deadline,
    )
    with user_errors(stopped="stopped"):
        keys = Keys() if keys_file is None else read_keys(keys_file)
        refuse_no_keys(host, keys)
        log = ServiceLog(log_file, quiet=quiet, with_text=log_text)
        folders = [DEMO] if demo else bundles or []
        service = make_service(
            folders, limits, log, model=model, device=device, dtype=dtype, cores=threads
        )
        with listen(host, port) as bound:
            address = address_of(bound)
            say(
                f"loading {service.model}; {address} answers when it is ready",
                quiet or as_json,
            )
            record = {
                "url": address,
                "model": service.model,
                "detectors": list(service.trained),
            }
            server = ServiceServer(
                service,
                keys,
                not is_loopback(host),
                on_ready=lambda: report_ready(record),
            )
            ended = run_server(server, bound)
    if not ended:  # the model is in the middle of a long pass, and nobody waits for it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
