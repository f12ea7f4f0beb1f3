"""The job of `anchorscope score`: a bundle and a question, or a file of them, become scores, a table, a file."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.artefacts.sealed_folder import refuse_linked
from anchorscope.datasets.catalog import (
    BUILT_IN,
    HUB,
    WITH_FILE,
    DatasetSpec,
    open_dataset,
    parse_spec,
)
from anchorscope.datasets.question import Question, asked, parse_columns
from anchorscope.detectors.bundle_files import bundle_files, checked_record
from anchorscope.errors import UserError, unknown
from anchorscope.evidence.source_use import USE_COLUMNS, use_record
from anchorscope.files import make_folder, open_regular, remove_partials, replacing
from anchorscope.progress import Progress

if TYPE_CHECKING:  # torch takes seconds: mistakes are found before it is imported
    from anchorscope.detectors.bundle import TrainedDetector
    from anchorscope.detectors.detector import Detector, Score

WRITTEN = (".csv", ".parquet", ".jsonl")
"""What `--out` writes, by the file's ending."""
_READ = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".gz", ".txt", ".eval")
_TEXTS = (".md", ".rst", ".html", ".htm", ".xml", ".yaml", ".yml", ".tex", ".log")
_DOCUMENTS = (".pdf", ".doc", ".docx", ".rtf", ".odt", ".epub", ".zip")
COLUMNS = (
    "item_id",
    "question",
    "answer",
    "truth_probability",
    "log_odds",
    "verdict",
    "warnings",
)
STANDARD_INPUT = "-"
_LONGEST_PASSAGE = 1_000_000
_MOST_INPUT = 100_000_000  # bytes of standard input


@dataclass(frozen=True)
class Scored:
    trained: "TrainedDetector"
    item_ids: tuple[str, ...]
    scores: "tuple[Score, ...]"
    risk: float | None
    """The risk that verdicts are for; None where none was measured."""
    bad_rows: int
    """Rows of the file that could not be read, or were empty, and were left out."""
    seconds: float
    """For answering and scoring; loading the model not counted."""
    uses: tuple[dict[str, Any], ...] = ()
    """Of every answer, whether it used its passages (`USE_COLUMNS`); empty where no question has one."""

    def rows(self) -> list[dict[str, Any]]:
        uses = self.uses or ({},) * len(self.scores)
        return [
            {"item_id": name, **score.record(), **use}
            for name, score, use in zip(self.item_ids, self.scores, uses, strict=True)
        ]

    def record(self) -> dict[str, Any]:
        return {
            "detector": self.trained.name,
            "model": self.trained.setting.model,
            "sha256": self.trained.sha256,
            "risk": self.risk,
            "items": self.rows(),
            "n": len(self.scores),
            "bad_rows": self.bad_rows,
            "seconds": round(self.seconds, 3),
        }


def score(
    bundle: Path,
    what: Sequence[str],
    progress: Progress,
    loading: AbstractContextManager[None],
    *,
    risk: float | None = None,
    out: Path | None = None,
    context: str | None = None,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
    **reading: Any,
) -> Scored:
    """Scores questions, a file or dataset of them, or standard input. Mistakes are reported before torch is imported.

    `loading` is held while it is. `model` is another source of the detector's model, `context` a passage that the model
    reads before every question that has none, as text or the name of a text file; `reading` goes to `read_questions`.
    """
    files = bundle_files(bundle)
    checked_record(files, str(bundle))
    if out is not None:
        _refuse_unwritable(out, what)
    questions, bad_rows = read_questions(what, **reading)
    if context is not None:
        passage = _read_passage(context)
        questions = [
            question if question.context else replace(question, context=(passage,))
            for question in questions
        ]
    with loading:
        from anchorscope.detectors.bundle import unpack
        from anchorscope.detectors.detector import Detector
        from anchorscope.models.process_settings import few_collections

    trained = unpack(files, str(bundle))
    threshold = trained.threshold(risk)
    detector = Detector.load(
        trained,
        model,
        device=device,
        dtype=dtype,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    began = time.monotonic()
    with few_collections() if len(questions) > 1 else nullcontext():
        scores = detector.score_questions(questions, risk=risk)
        uses = measure_uses(detector, questions, scores)
    seconds = time.monotonic() - began
    names = tuple(question.item_id for question in questions)
    verdict_risk = None if threshold is None else threshold.risk
    scored = Scored(
        trained, names, tuple(scores), verdict_risk, bad_rows, seconds, uses
    )
    if out is not None:
        write_rows(scored.rows(), out)
    return scored


def measure_uses(
    detector: "Detector", questions: Sequence[Question], scores: "Sequence[Score]"
) -> tuple[dict[str, Any], ...]:
    """Whether every answer used its passages, see docs/sources.md; empty where no question has one."""
    if not any(question.context for question in questions):
        return ()
    from anchorscope.evidence.sources import answers_use

    given = [
        replace(question, model_answer=score.answer)
        for question, score in zip(questions, scores, strict=True)
    ]
    session = detector.session
    uses = answers_use(
        session.executor, session.planner, session.items(given), session.progress
    )
    return tuple(use_record(*use, detector.trained.context_use) for use in uses)


def _read_passage(given: str) -> str:
    """The passage: the content of a file of that name, or the text itself."""
    text = given.strip()
    path = Path(text)
    try:
        if path.is_file():
            with open_regular(path) as file:
                text = file.read(_LONGEST_PASSAGE).decode().strip()
        elif text and (path.is_dir() or names_a_file(text)):
            state = "a folder" if path.is_dir() else "no file that is there"
            raise UserError(
                f"--context {given!r} is {state}; give the name of a text file, or the passage itself."
            )
    except OSError:  # too long for a path: a passage
        pass
    except UnicodeDecodeError:
        raise UserError(
            f"--context {given!r} is not UTF-8 text; save it as UTF-8."
        ) from None
    if not text:
        raise UserError("--context is empty; give a passage, or leave it out.")
    return text


def read_questions(
    what: Sequence[str],
    answer: str | None = None,
    generate: bool = True,
    columns: tuple[str, ...] = (),
    on_bad_row: str = "fail",
    large_files: bool = False,
) -> tuple[list[Question], int]:
    """The questions that are meant, and how many rows of a file were left out.

    `answer` is that of a single question. Unless the model may `generate` answers, every question needs one.
    """
    named = [
        text for text in what if text == STANDARD_INPUT or dataset_of(text) is not None
    ]
    if named and len(what) > 1:
        raise UserError(
            f"{named[0]!r} is given beside other questions; give questions, or one file, or - alone."
        )
    if answer is not None and (named or len(what) > 1):
        raise UserError(
            "--answer goes with a single question; several stand in a file with the columns question, answer."
        )
    spec, bad_rows = (
        dataset_of(what[0]) if named and named[0] != STANDARD_INPUT else None,
        0,
    )
    if spec is not None:
        reading = open_dataset(
            spec, on_bad_row, parse_columns(columns), graded=False, large=large_files
        )
        questions = list(reading)
        bad_rows = reading.bad + reading.empty
        if not questions:
            raise UserError(
                f"{what[0]!r} holds no question that can be scored ({reading.rows} rows, all bad or empty)."
            )
    else:
        texts = read_lines() if named else what
        questions = [asked(text, answer, number) for number, text in enumerate(texts)]
    without = [question for question in questions if question.model_answer is None]
    if without and not generate:
        raise UserError(
            f"The question {without[0].question[:80]!r} has no answer and none may be generated ({len(without):,} of "
            f"{len(questions):,} have none); add --answer TEXT or a column answer, or --generate."
        )
    return questions, bad_rows


def read_lines() -> list[str]:
    """The questions on standard input, one a line; blank lines are left out."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError(
            "- reads questions from standard input, one a line, and nothing is piped into it."
        )
    data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(data) > _MOST_INPUT:
        raise UserError(
            f"Standard input has more than {_MOST_INPUT / 1e6:g} MB; write it to a file and give its name."
        )
    try:
        lines = [line for line in data.decode().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UserError(
            "Standard input is not valid UTF-8 text; write it in UTF-8."
        ) from None
    if not lines:
        raise UserError("Standard input holds no question; give one a line.")
    return lines


def names_a_file(text: str) -> bool:
    """Whether a text can only mean a file: by its beginning or its end, or as one word with a folder in it."""
    if len(text.splitlines()) > 1:
        return False
    ending = os.path.splitext(text)[1].lower()
    if ending in (*_READ, *_TEXTS, *_DOCUMENTS):
        return True
    if len(text.split()) > 1:
        return text.startswith(("/", "./", "../", "~/"))
    return "/" in text or os.sep in text


def dataset_of(what: str) -> DatasetSpec | None:
    """The dataset that a text names: one known by name, a file that is there or reads like one; None for a question."""
    text = what.strip()
    if (
        text in (*BUILT_IN, *WITH_FILE)
        or text.startswith(("file:", HUB))
        or text.split("=")[0] in WITH_FILE
    ):
        return parse_spec(text)
    try:
        path = Path(text).expanduser()
        is_file = path.exists() and not (path.is_dir() and " " in text)
    except (OSError, RuntimeError):  # too long for a path, or the home of nobody
        is_file = False
    is_dataset = text and (is_file or names_a_file(text))
    return parse_spec(f"file:{text}") if is_dataset else None


def _refuse_unwritable(out: Path, what: Sequence[str]) -> None:
    if out.suffix.lower() not in WRITTEN:
        raise unknown("ending of --out", out.suffix or str(out), WRITTEN)
    if out.is_dir():
        raise UserError(
            f"--out {str(out)!r} is a folder; name a file ending in {', '.join(WRITTEN)}."
        )
    refuse_linked(out)
    if not os.path.lexists(out):
        return
    if not _is_table_of_scores(out):
        raise UserError(
            f"--out {str(out)!r} is there already and is not a table of scores, with all its columns and no others; "
            f"choose another name."
        )
    for text in what:
        spec = dataset_of(text)
        if spec is not None and spec.path is not None and out.samefile(spec.path):
            raise UserError(
                f"--out {str(out)!r} is the file that is scored; choose another name."
            )


def _is_table_of_scores(path: Path) -> bool:
    """Whether every row of a file is one of `write_rows`, of this detector or of another."""
    import polars as pl

    try:
        if path.is_symlink():
            return False
        with open_regular(path) as file:
            if path.suffix.lower() == ".parquet":
                frame = pl.read_parquet(file)
            elif path.suffix.lower() == ".jsonl":
                frame = pl.read_ndjson(file, infer_schema_length=None)
            else:
                frame = pl.read_csv(file, infer_schema=False)
        schema = _schema(USE_COLUMNS if USE_COLUMNS[0] in frame.columns else ())
        if path.suffix.lower() == ".csv":
            schema["warnings"] = pl.String()
        given = frame.cast(pl.Schema(schema))
        always = given.select("item_id", "question", "verdict").null_count()
        return given.columns == list(schema) and sum(always.row(0)) == 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def _schema(uses: Iterable[str]) -> dict[str, Any]:
    """The columns of a table of scores, with those on the use of passages that it has."""
    import polars as pl

    text, number = pl.String(), pl.Float64()
    types = (text, text, text, number, number, text, pl.List(text))
    schema: dict[str, Any] = dict(zip(COLUMNS, types, strict=True))
    return schema | {name: pl.Int64() if name == "passage" else number for name in uses}


def write_rows(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Writes rows as the file's ending says, whole or not at all; CSV has warnings as one text."""
    import polars as pl

    schema = _schema(name for name in USE_COLUMNS if name in rows[0])
    frame = pl.DataFrame(rows, schema=schema)
    try:
        make_folder(out.parent)
        remove_partials(out.parent, out.name)
        with replacing(out) as half_made:
            if out.suffix.lower() == ".parquet":
                frame.write_parquet(half_made)
            elif out.suffix.lower() == ".jsonl":
                frame.write_ndjson(half_made)
            else:
                frame.with_columns(pl.col("warnings").list.join("; ")).write_csv(
                    half_made
                )
    except OSError as error:
        raise UserError(
            f"--out {str(out)!r} cannot be written ({error.strerror}); choose a place where files can be made."
        ) from None
