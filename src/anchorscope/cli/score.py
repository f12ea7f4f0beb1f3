"""`anchorscope score`: is this answer true? A saved detector says so of one answer, or of a file of them."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from anchorscope.catalogue import MOST_BATCH_TOKENS, ON_BAD_ROW
from anchorscope.cli.completion import one_of
from anchorscope.cli.help_texts import OUTPUT, AsJson, Quiet, in_panel
from anchorscope.cli.terminal import emit_json, harmless, listener, loading, page, say, short, user_errors

if TYPE_CHECKING:
    from anchorscope.detecting.score import Scored

IN_WORDS = {
    "accept": "accept",
    "abstain": "abstain: not sure enough",
    "out-of-range": "out of range: unlike the training data",
}
"""Verdicts as a person reads them."""
EXAMPLES = (
    ("one question; the model answers it", 'anchorscope score --detector runs/demo/detectors/anchor "Who wrote Emma?"'),
    ("an answer that you have", 'anchorscope score --detector BUNDLE "Who wrote Emma?" --answer "Jane Austen"'),
    ("a file of them", "anchorscope score --detector BUNDLE answers.csv --out scored.csv"),
)
"""What people type first, and what for."""
_what, _how, _output = in_panel("Detector and answers"), in_panel("Running"), in_panel(OUTPUT)
_STOPPED = "stopped; nothing half made was kept, the same command starts again"
_SHOWN, _LONG = 40, 60


def score(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_QUESTION",
            help="A question in quotes, a question file (with or without a column model_answer), or a dataset.",
        ),
    ],
    detector: Annotated[Path, _what(help="The bundle: a folder that anchorscope detect has written.")],
    answer: Annotated[str | None, _what(help="The answer to the question; else the model answers.")] = None,
    model: Annotated[str | None, _what(help="Where the detector's model is, if not where it was in training.")] = None,
    risk: Annotated[
        float | None,
        _what(help="The share of wrong answers among accepted ones; one that the detector was trained for."),
    ] = None,
    generate: Annotated[
        bool, _what("--generate/--no-generate", help="Whether the model may answer what has no answer.")
    ] = True,
    out: Annotated[Path | None, _output(help="Write the rows to FILE.csv, .parquet or .jsonl.")] = None,
    columns: Annotated[
        list[str] | None, _what(metavar="NAME=COLUMN,...", help="Which of your columns is what: question=prompt.")
    ] = None,
    on_bad_row: Annotated[
        str, _what(help="What a bad row of a file does: fail, or skip and count.", autocompletion=one_of(ON_BAD_ROW))
    ] = "fail",
    large_files: Annotated[
        bool, _what("--large-files", help="Read a file of more than 2 GB, unpacked; memory grows with it.")
    ] = False,
    device: Annotated[str, _how(help="auto, cpu, cuda, cuda:N or balanced.")] = "auto",
    dtype: Annotated[str, _how(help="Precision of the model; auto is that of the training.")] = "auto",
    batch_tokens: Annotated[
        int | None, _how(min=1, max=MOST_BATCH_TOKENS, help="Tokens run together; found where not given.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say how probable it is that answers are true, and which to accept."""
    from anchorscope.detecting.score import ScoreOptions  # only here: help has to come at once
    from anchorscope.detecting.score import score as score_all

    named = tuple(part for text in columns or () for part in text.split(",") if part)
    options = ScoreOptions(
        answer, model, generate, risk, named, on_bad_row, device, dtype, batch_tokens, out, large_files
    )
    # Threads that wait for work sleep: products are small, and spinning cost a third of the CPU time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with user_errors(stopped=_STOPPED):
        scored = score_all(detector, what, options, listener(quiet), loading("torch", quiet))
    if as_json:
        return emit_json(scored.record() | ({} if out is None else {"out": str(out)}))
    if not quiet or out is None:
        _show(scored)
    if out is not None:
        say(f"rows: {out}", quiet)
    if scored.bad_rows:
        say(f"warning: {scored.bad_rows:,} bad rows were left out", quiet)


def _show(scored: "Scored") -> None:
    """The verdicts first; the common warnings once, below."""
    n = len(scored.scores)
    common = [
        text
        for text, times in Counter(text for one in scored.scores for text in one.warnings).items()
        if times == n > 1
    ]
    with page(_LONG * 4) as console:
        table = Table.grid(padding=(0, 2, 0, 0))
        for one in scored.scores[:_SHOWN]:
            told = "" if one.truth_probability is None else f"{one.truth_probability:.0%} true"
            warned = "; ".join(text for text in one.warnings if text not in common)
            about = f"{short(one.question, _LONG)} → {short(one.answer, _LONG) or 'nothing'}"
            pathway = "" if one.pathway_score is None else f"cut {one.pathway_score:+.1f}"
            cells = (IN_WORDS[one.verdict], told, about, pathway, warned)
            table.add_row(*(Text(harmless(cell)) for cell in cells))
        console.print(table)
    if n > _SHOWN:
        say(f"{_SHOWN} of {n:,} items; --out FILE.csv or --json has all")
    for text in common:
        say(f"warning: {text}")
    if n > 1:
        counts = Counter(one.verdict for one in scored.scores)
        told = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in IN_WORDS if counts[verdict])
        say(f"{n:,} answers in {scored.seconds:.1f} s: {told}")
