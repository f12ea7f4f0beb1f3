"""`anchorscope data`: what is in a question file or a known dataset, before a model is asked anything.

The numbers go to standard output, as a table for people or as one JSON object; advice goes to standard error.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchorscope.cli.terminal import emit_json, emit_text, listener, say, user_errors
from anchorscope.progress import Progress

if TYPE_CHECKING:  # the readers are imported when a file is opened: help has to come at once
    from anchorscope.datasets.question import Question

FILES = {
    "popqa=FILE": "the official popQA.tsv, or its rows in any form below",
    "triviaqa=FILE": "the official JSON, or Hugging Face rows",
    "hotpotqa=FILE": "the official or simplified JSON, or Hugging Face rows",
    "nq=FILE": "NQ-open JSON lines",
    "FILE": "your own CSV, TSV, JSON, JSON lines or Parquet with the columns question and answers (--columns renames)",
}
"""What a file may be; all of them also gzipped, and told apart by what they hold."""
_FEW_BAD, _LISTED_BAD, _RELATIONS, _COLUMNS = 5, 100, 20, 30
_LONG, _ANSWERS = 160, 5


def data(
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="A question file (mine.csv), a name (atlas) or hub:OWNER/NAME. Without it: what can be named.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMN,...", help="Which of your columns is what: question=prompt,answers=gold."),
    ] = None,
    on_bad_row: Annotated[str, typer.Option(help="What a row that cannot be used does: skip or fail.")] = "skip",
    large_files: Annotated[
        bool, typer.Option("--large-files", help="Read a file of more than 2 GB, unpacked; memory grows with it.")
    ] = False,
    examples: Annotated[int, typer.Option(min=0, max=100, help="How many questions to show, drawn at random.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Another seed draws other examples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no advice.")] = False,
) -> None:
    """Show what is in a question file: format, rows, bad rows, answers, repeats, examples."""
    with user_errors(stopped="stopped"):
        if dataset is None:
            return emit_json(_known()) if as_json else _list_known(_known(), quiet)
        record = _look(dataset, columns or [], on_bad_row, large_files, examples, seed, listener(quiet))
        if as_json:
            return emit_json(record)
        _show(record)
        _advise(record, quiet)


def _look(
    text: str, columns: list[str], on_bad_row: str, large: bool, examples: int, seed: int, progress: Progress
) -> dict[str, Any]:
    """Everything that is known of the dataset, as the JSON object shows it."""
    from anchorscope.answers.choose import NEEDED, LabelCounter, take_survey, why_not_asked
    from anchorscope.datasets.catalog import open_dataset, parse_spec
    from anchorscope.datasets.question import parse_columns

    spec, counter = parse_spec(text), LabelCounter()

    def count(question: "Question") -> None:
        if not why_not_asked(question):
            counter.add(question)

    reading = open_dataset(spec, on_bad_row, parse_columns(columns), large=large, progress=progress)
    survey = take_survey(reading, examples, seed, count)
    outlook = counter.outlook()
    return {
        "dataset": spec.name,
        "path": spec.path,
        "format": reading.format,
        "rows": reading.rows,
        "bad_rows": reading.bad,
        "bad_row_list": [asdict(bad) for bad in reading.bad_rows[:_LISTED_BAD]],
        **survey.record(),
        "asked": outlook.questions,
        "enough": outlook.is_enough,
        "needed": NEEDED,
        "outlook": outlook.sentence,
        "examples": [
            {"id": one.item_id, "question": one.question, "answers": list(one.answers)} for one in survey.examples
        ],
    }


def _show(record: Mapping[str, Any]) -> None:
    rows: list[tuple[str, str]] = [
        ("dataset", str(record["path"] or record["dataset"])),
        ("format", record["format"]),
        ("rows", f"{record['rows']:,}"),
        ("bad rows", f"{record['bad_rows']:,}" if record["bad_rows"] else "none"),
    ]
    bad = record["bad_row_list"][:_FEW_BAD]
    rows += [("", f"{one['line']}: {_plain(one['reason'])}") for one in bad]
    if record["bad_rows"] > len(bad):
        rows.append(("", f"and {record['bad_rows'] - len(bad):,} more"))
    repeated = f" different; repeats left out: {record['repeated']:,}" if record["repeated"] else ", none twice"
    rows.append(("questions", f"{record['questions']:,}{repeated}" if record["questions"] else "none"))
    if record["questions"]:
        rows += [("", ""), *_contents(record)]
    if record["outlook"]:
        rows += [("", ""), ("for a run", record["outlook"])]
    _print(rows)
    for number, example in enumerate(record["examples"]):
        emit_text(f"\n{_plain(example['question'])}" if number else f"\nexamples\n\n{_plain(example['question'])}")
        emit_text(f"    {_answers(example['answers'])}")


def _contents(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is counted over the different questions."""
    total = record["questions"]
    yield "answers", f"{record['answers']:,} accepted; per question {_spread(record['answers_per_question'])}"
    if record["yes_no"]:
        yield "", f"{_share(record['yes_no'], total)} of the questions ask for yes or no ({record['yes_no']:,})"
    yield "question words", _spread(record["words_per_question"])
    if record["wordless"]:
        yield "", f"{record['wordless']:,} questions without any word"
    given = {name: _share(count, total) for name, count in record["filled"].items() if count}
    yield "given", _listed(given) if given else "question and answers only"
    if record["filled"]["truthful"]:
        yield "", f"{_share(record['labelled_true'], record['filled']['truthful'])} of the labels are true"
    if record["relations"]:
        yield f"relations ({len(record['relations']):,})", _top(record["relations"], _RELATIONS)
    if record["metadata"]:
        columns = {name: _share(count, total) if count < total else "" for name, count in record["metadata"].items()}
        yield "other columns", _listed(columns, _COLUMNS)


def _advise(record: Mapping[str, Any], quiet: bool) -> None:
    """What follows for a run."""
    hints = []
    if record["bad_rows"]:
        hints.append("a run stops at the first bad row; leave them out with --on-bad-row skip")
    if record["yes_no"] and not record["filled"]["truthful"]:
        hints.append("a run leaves yes/no questions out, since chance is 50 %; --yes-no keep asks them too")
    if record["questions"] and not record["filled"]["relation"]:
        hints.append("no column relation: true and false answers can only be balanced over the whole dataset")
    if record["questions"] and not record["filled"]["subject"]:
        hints.append("no column subject: questions about one thing may stand in several folds")
    if hints:
        say("\n" + "\n".join(hints), quiet)


def _known() -> dict[str, Any]:
    """What can be named, and how to get it."""
    from anchorscope.datasets.catalog import SOURCES
    from anchorscope.datasets.relations import load_atlas

    return {
        "built_in": [{"name": "atlas", "rows": len(load_atlas())}],
        "hub": [{"name": name, **asdict(source)} for name, source in SOURCES.items()],
        "hub_library": find_spec("datasets") is not None,
        "files": FILES,
    }


def _list_known(record: Mapping[str, Any], quiet: bool) -> None:
    rows = [("name", "questions", "where from"), ("atlas", f"{record['built_in'][0]['rows']:,}", "built in")]
    for one in record["hub"]:
        subset = " ".join(filter(None, (one["configuration"], one["split"])))
        from_hub = f"the hub: {one['repository']}, {subset}; {one['megabytes']} MB, once"
        by_file = f"or {one['name']}=FILE with {one['file']} from {one['where']}"
        rows += [(one["name"], f"{one['rows']:,}", from_hub), ("", "", by_file)]
    rows.append(("hub:OWNER/NAME", "", "any other dataset of the hub; :SPLIT or :CONFIGURATION/SPLIT may follow"))
    _print(rows)
    emit_text()
    _print([("file", "what it may be; recognised from its content, also gzipped"), *record["files"].items()])
    if not record["hub_library"]:
        say("\nfor datasets from the hub: pip install 'anchorscope[hub]'", quiet)


def _print(rows: Iterable[tuple[str, ...]]) -> None:
    """Columns, folded to the terminal's width; in a pipe one line per row, without spaces at its end."""
    width = Console().width if sys.stdout.isatty() else 100_000
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))  # an address must stay whole
    page = Console(file=StringIO(), width=width, color_system=None)
    page.print(table)
    emit_text("\n".join(line.rstrip() for line in page.file.getvalue().splitlines()))  # type: ignore[attr-defined]


def _plain(text: str, longest: int = _LONG) -> str:
    """A text of the file as one short line; what would steer the terminal becomes a space."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _answers(answers: list[str]) -> str:
    shown = " | ".join(_plain(answer, 60) for answer in answers[:_ANSWERS])
    return f"{shown} | … ({len(answers)} in all)" if len(answers) > _ANSWERS else shown


def _spread(spread: Mapping[str, float]) -> str:
    return f"{spread['mean']:.1f} on average, median {spread['median']:g}, at most {spread['largest']:,}"


def _share(count: int, total: int) -> str:
    """A share as a person reads it: no 100 % that is not all, and no 0 % that is not none."""
    percent = 100 * count / total
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return "over 99.9 %" if 99.9 < percent < 100 else f"{percent:.1f} %".replace(".0 %", " %")


def _listed(entries: Mapping[str, str], most: int = 100) -> str:
    shown = [f"{_plain(name, 60)} {value}".rstrip() for name, value in list(entries.items())[:most]]
    return ", ".join(shown) + (f" and {len(entries) - most:,} more" if len(entries) > most else "")


def _top(counts: Mapping[str, int], most: int) -> str:
    return _listed({name: f"{count:,}" for name, count in counts.items()}, most)
