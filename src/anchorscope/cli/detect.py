"""`anchorscope detect`, `score` and `detector`: fit detectors on what runs kept, score answers, publish a detector."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from anchorscope.catalogue import DETECTORS, MOST_BATCH_TOKENS, OWN_DETECTORS
from anchorscope.cli.help import AsJson, PlainCommand, Quiet, in_help, in_panel, output, running
from anchorscope.cli.terminal import (
    NOTHING_KEPT,
    emit_json,
    emit_text,
    listener,
    loading,
    page,
    short,
    split_list,
    user_errors,
)
from anchorscope.detectors.bundle_files import bundle_files, checked_record
from anchorscope.errors import UserError
from anchorscope.screen import harmless, say

if TYPE_CHECKING:
    from anchorscope.detecting.score import Scored

EXAMPLES = {
    "detect": (
        (
            "a run that keeps what detectors read",
            "anchorscope run --limit 600 --keep states,states-cut,detection --out runs/d",
        ),
        ("fit, compare, save", "anchorscope detect runs/d --out runs/d-detectors"),
        ("only fit and save one", "anchorscope detect runs/d --fit-only --bundles auto --out runs/d-auto"),
    ),
    "score": (
        (
            "one question; the model answers it",
            'anchorscope score --detector runs/demo/detectors/auto "Who wrote Emma?"',
        ),
        ("an answer that you have", 'anchorscope score --detector BUNDLE "Who wrote Emma?" --answer "Jane Austen"'),
        ("a file of them", "anchorscope score --detector BUNDLE answers.csv --out scored.csv"),
    ),
    "detector": (
        ("what it was trained on, how good it is", "anchorscope detector card runs/demo/detectors/auto"),
        ("publish it; what is sent is shown before", "anchorscope detector push BUNDLE USER/NAME --private"),
        ("use it elsewhere", 'anchorscope score --detector hub:USER/NAME "Who wrote Emma?"'),
    ),
}
VERDICTS = {
    "accept": "accept",
    "abstain": "abstain: not sure enough",
    "out-of-range": "out of range: unlike the training data",
}
"""Verdicts as a person reads them."""
_detectors, _stats, _scored = in_panel("Detectors"), in_panel("Statistics"), in_panel("Detector and answers")
_NAMES = ", ".join([*(name for name, entry in OWN_DETECTORS.items() if entry.variant_of is None), *DETECTORS.plugins])
_COMPARED_HELP = f"Detectors to compare, names with commas; all where not given: {_NAMES}, and their controls."
_BUNDLES_HELP = (
    "Detectors to save, names with commas; where not given, of confidence, probe, probe+confidence, counterfactual and "
    "auto those that the runs allow."
)
_RISK_HELP = (
    "Shares of false answers among the accepted ones that saved detectors have thresholds for; the first leads."
)
_SHOWN, _LONG = 40, 60


def detect(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Finished runs of one model that kept states (--keep states,states-cut,"
            "detection); a run under another prompt is a target.",
        ),
    ],
    out: Annotated[str, output(help="The folder for tables, figures, bundles and the page.")],
    detectors: Annotated[str, _detectors(help=_COMPARED_HELP)] = "",
    bundles: Annotated[str | None, _detectors(help=_BUNDLES_HELP, show_default=False)] = None,
    fit_only: Annotated[
        bool, _detectors("--fit-only", help="Compare nothing: fit and save detectors, each as a folder in --out.")
    ] = False,
    folds: Annotated[int, _stats(help="Outer folds.")] = 5,
    seeds: Annotated[int, _stats(help="Fold seeds: everything is fitted anew for each.")] = 5,
    tosses: Annotated[int, _stats(help="Fits on tossed labels, the control that must give 0.5.")] = 20,
    resamples: Annotated[int, _stats(help="Bootstrap resamples behind every interval.")] = 1000,
    risk: Annotated[str, _stats(help=_RISK_HELP)] = "0.1,0.05,0.2,0.3",
    seed: Annotated[int, _stats(help="Seed of every draw.")] = 0,
    device: Annotated[str, running(help="auto, cpu, cuda or cuda:N: where detectors are fitted.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    with user_errors(stopped=NOTHING_KEPT):
        with loading("polars", quiet):
            from anchorscope.detecting.inputs import DetectOptions, open_runs
            from anchorscope.recipe import named_folder
        try:
            risks = tuple(map(float, split_list(risk)))
        except ValueError:
            raise UserError(f"--risk is {risk!r}; give shares between 0 and 1 with commas, like 0.1,0.2.") from None
        saved = None if bundles is None else split_list(bundles)
        options = DetectOptions(
            split_list(detectors), saved, folds, seeds, tosses, resamples, risks, seed, device, fit_only
        )
        folder = named_folder(out)
        open_runs(runs)  # what they lack is reported before torch is imported
        with loading("torch", quiet):
            from anchorscope.detecting.detect import detect as detect_runs
        manifest = detect_runs(runs, out=folder, progress=listener(quiet), **vars(options)).manifest
    for warning in manifest["warnings"]:
        say(f"warning: {warning}", quiet)
    if as_json:
        emit_json({"out": str(out), **{name: value for name, value in manifest.items() if name != "sha256"}})
    else:
        report = "" if fit_only else f"\nreport: {Path(out) / 'report.html'}"
        answer = "" if fit_only else f"{manifest['answer']}\n"
        say(f"{answer}saved:  {', '.join(manifest['bundles']) or 'none'}{report}", quiet)


def score(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_QUESTION",
            help="A question in quotes, a question file (with or without a column answer), or a dataset.",
        ),
    ],
    detector: Annotated[Path, _scored(help="The bundle: a folder that anchorscope detect has written.")],
    answer: Annotated[str | None, _scored(help="The answer to the question; else the model answers.")] = None,
    model: Annotated[
        str | None, _scored(help="Where the detector's model is, if not where it was in training.")
    ] = None,
    risk: Annotated[
        float | None,
        _scored(help="The share of wrong answers among accepted ones; one that the detector was trained for."),
    ] = None,
    generate: Annotated[
        bool, _scored("--generate/--no-generate", help="Whether the model may answer what has no answer.")
    ] = True,
    out: Annotated[Path | None, output(help="Write the rows to FILE.csv, .parquet or .jsonl.")] = None,
    columns: Annotated[
        list[str] | None, _scored(metavar="NAME=COLUMN,...", help="Which of your columns is what: question=prompt.")
    ] = None,
    on_bad_row: Annotated[str, _scored(help="What a bad row of a file does: fail, or skip and count.")] = "fail",
    large_files: Annotated[
        bool, _scored("--large-files", help="Read a file of more than 2 GB, unpacked; memory grows with it.")
    ] = False,
    context: Annotated[
        str | None,
        _scored(metavar="FILE|TEXT", help="A passage before every question that has none; adds context_used."),
    ] = None,
    device: Annotated[str, running(help="auto, cpu, cuda, cuda:N or balanced.")] = "auto",
    dtype: Annotated[str, running(help="Precision of the model; auto is that of the training.")] = "auto",
    batch_tokens: Annotated[
        int | None, running(min=1, max=MOST_BATCH_TOKENS, help="Tokens run together; found where not given.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    from anchorscope.detecting.score import ScoreOptions  # only here: help has to come at once
    from anchorscope.detecting.score import score as score_all

    named = split_list(",".join(columns or ()))
    options = ScoreOptions(
        answer, model, generate, risk, named, on_bad_row, device, dtype, batch_tokens, out, large_files, context
    )
    # Threads that wait for work sleep: products are small, and spinning cost a third of the CPU time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with user_errors(stopped=NOTHING_KEPT):
        scored = score_all(detector, what, options, listener(quiet), loading("torch", quiet))
    if as_json:
        return emit_json(scored.record() | ({} if out is None else {"out": str(out)}))
    if not quiet or out is None:
        _show_scores(scored)
    if out is not None:
        say(f"rows: {out}", quiet)
    if scored.bad_rows:
        say(f"warning: {scored.bad_rows:,} bad rows were left out", quiet)


def _show_scores(scored: "Scored") -> None:
    """The verdicts first; warnings that all answers share once, below."""
    n = len(scored.scores)
    times = Counter(text for row in scored.scores for text in row.warnings)
    shared = [text for text in times if times[text] == n > 1]
    with page(_LONG * 4) as console:
        table = Table.grid(padding=(0, 2, 0, 0))
        for place, row in enumerate(scored.scores[:_SHOWN]):
            used = scored.context_used[place] if scored.context_used else None
            table.add_row(
                VERDICTS[row.verdict],
                "" if row.truth_probability is None else f"{row.truth_probability:.0%} true",
                f"{short(row.question, _LONG)} → {short(row.answer, _LONG) or 'nothing'}",
                "" if row.pathway_score is None else f"cut {row.pathway_score:+.1f}",
                "" if used is None else f"passage {used:.0%} used",
                harmless("; ".join(text for text in row.warnings if text not in shared)),
            )
        console.print(table)
    if n > _SHOWN:
        say(f"{_SHOWN} of {n:,} items; --out FILE.csv or --json has all")
    for text in shared:
        say(f"warning: {text}")
    if n > 1:
        counts = Counter(row.verdict for row in scored.scores)
        verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict])
        say(f"{n:,} answers in {scored.seconds:.1f} s: {verdicts}")


detector = typer.Typer()
_Bundle = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="The folder that anchorscope detect has written, or hub:USER/NAME.")
]


@detector.command("card", cls=PlainCommand, epilog=in_help(EXAMPLES["detector"][:1]))
def show_card(bundle: _Bundle) -> None:
    """Print the card of a saved detector, as Markdown: data, quality, shifts, limits, how to load it, sha256."""
    files = bundle_files(bundle)
    checked_record(files, str(bundle))
    with loading("torch"):
        from anchorscope.detecting.publish import card_text
        from anchorscope.detectors.bundle import unpack

    for line in card_text(unpack(files, str(bundle)), str(bundle)).splitlines():
        emit_text(harmless(line))


@detector.command("push", cls=PlainCommand, epilog=in_help(EXAMPLES["detector"][1:]))
def push(
    bundle: _Bundle,
    repository: Annotated[str, typer.Argument(metavar="REPO_ID", help="Where to: USER/NAME.")],
    private: Annotated[bool, typer.Option("--private", help="Only you, or your organisation, may see it.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Put a new version into a repository that exists.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Publish a saved detector with its card: the two files of the bundle and README.md, nothing else."""
    checked_record(bundle_files(bundle), str(bundle))
    with loading("torch", quiet):
        from anchorscope.detecting.publish import publication, publish

    draft = publication(bundle, repository)
    visibility = "private" if private else "public, or private if it is that already" if update else "public"
    lines = [f"{visibility}, as {repository}:"]
    lines += [f"  {name}: {len(content):,} bytes" for name, content in draft.files.items()]
    lines += [f"  sha256 of the bundle: {draft.sha256}", f"  model that these files name: {draft.model}"]
    say("\n".join([*lines, *(f"warning: {line}" for line in draft.told)]), quiet and yes)
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UserError(f"Nothing was published as {repository!r}: nobody can be asked here; add --yes.")
        if not typer.confirm("Publish this?", err=True):
            raise UserError(f"Nothing was published as {repository!r}.")
    commit = publish(draft, private=private, update=update)
    if as_json:
        return emit_json({"repository": repository, "commit": commit, "sha256": draft.sha256, "files": [*draft.files]})
    emit_text(f"hub:{repository}@{commit}")
