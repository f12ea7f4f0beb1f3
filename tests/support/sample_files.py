"""A small invented file of every format, in every container that it circulates in; all ask the same three questions."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.datasets.catalog import DatasetSpec, Reading, open_dataset
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError

QUESTIONS = (
    "Who is the author of The Salt Lantern?",
    'Which ship, the "Grey Heron" or the "Ébène", sank first?',
    "In what city was Ivo Brandt born?",
)
ANSWERS = (
    ("Ada Quill", "Quill's Ada", "🚁"),
    ("Ébène",),
    ("Kolmere", 'Kol "Mere"', "K"),
)
SUBJECTS, RELATIONS = (
    ("The Salt Lantern", "Grey Heron", "Ivo Brandt"),
    ("author", "country", "place of birth"),
)
PAIRS = tuple(zip(QUESTIONS, ANSWERS, strict=True))
FIRST_ONLY = tuple((question, answers[:1]) for question, answers in PAIRS)


@dataclass(frozen=True)
class Sample:
    """A file and what must be read from it."""

    name: str
    content: bytes
    format: str
    expected: tuple[tuple[str, tuple[str, ...]], ...] = PAIRS
    ids: tuple[str, ...] = ("1", "2", "3")
    checked_end: bool = True
    """Whether the file's own form tells that it is cut off, wherever that happens."""


def json_lines(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def json_list(rows: Sequence[Any]) -> bytes:
    return json.dumps(rows, indent=2, ensure_ascii=False).encode()


def table(rows: Sequence[dict[str, Any]], delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                name: json.dumps(cell) if isinstance(cell, list) else cell
                for name, cell in row.items()
            }
        )
    return text.getvalue().encode()


def parquet(rows: Sequence[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows, **options).write_parquet(file)
    return file.getvalue()


def each(make: Any) -> list[dict[str, Any]]:
    return [
        make(index, question, list(answers))
        for index, (question, answers) in enumerate(PAIRS)
    ]


OWN = each(
    lambda i, q, a: {
        "id": f"own-{i}",
        "subject": SUBJECTS[i],
        "year": 1900 + i,
        "question": q,
        "answers": a,
    }
)
POPQA = each(
    lambda i, q, a: {
        "id": 70 + i,
        "subj": SUBJECTS[i],
        "prop": RELATIONS[i],
        "obj": a[0],
        "s_aliases": "[]",
        "s_pop": 5 + i,
        "o_pop": i,
        "question": q,
        "possible_answers": json.dumps(["", *a, a[0]]),
    }
)
TRIVIAQA = each(
    lambda i, q, a: {
        "Answer": {
            "Aliases": [*a[1:], a[0]],
            "NormalizedAliases": ["x"],
            "Type": "WikipediaEntity",
            "Value": a[0],
        },
        "EntityPages": [{"Title": "A {page} [of]"}],
        "Question": q,
        "QuestionId": f"tc_{i}",
        "QuestionSource": "http://x",
    }
)
TRIVIAQA_HUB = each(
    lambda i, q, a: {
        "question": q,
        "question_id": f"tc_{i}",
        "question_source": "http://x",
        "entity_pages": {"title": ["A page"]},
        "answer": {
            "aliases": [*a[1:], a[0]],
            "normalized_aliases": ["x"],
            "value": a[0],
            "type": "WikipediaEntity",
        },
    }
)
HOTPOTQA = each(
    lambda i, q, a: {
        "_id": f"5a8b{i}",
        "question": q,
        "answer": a[0],
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Title", 0]],
        "context": [["Title", ["A sentence, with ] and }.", 'And a "quote".']]],
    }
)
HOTPOTQA_HUB = each(
    lambda i, q, a: {
        "id": f"5a8b{i}",
        "question": q,
        "answer": a[0],
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["T"], "sent_id": [0]},
        "context": {"title": ["T"], "sentences": [["A."]]},
    }
)
HOTPOTQA_SIMPLE = each(
    lambda i, q, a: {
        "question": q,
        "answer": a[0],
        "type": ("bridge", "comparison")[i % 2],
    }
)
NQ = each(lambda i, q, a: {"question": q, "answer": a})
HARNESS = each(
    lambda i, q, a: {
        "doc_id": 40 + i,
        "doc": {
            "question": q,
            "answer": {"aliases": a, "value": a[0]},
            "question_source": "http://x",
        },
        "target": str(a),
        "arguments": {
            "gen_args_0": {"arg_0": f"Question: {q} Answer:", "arg_1": {"until": ["."]}}
        },
        "resps": [["Kolmere, said she"]],
        "filtered_resps": ["Kolmere"],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": "0a",
        "prompt_hash": "1b",
        "target_hash": "2c",
        "exact_match": float(i == 2),
    }
)
ITEMS = each(
    lambda i, q, a: {
        "dataset": "popqa",
        "item_id": f"item-{i}",
        "question": q,
        "answers": a,
        "subject": SUBJECTS[i],
        "relation": RELATIONS[i],
        "group": i,
        "model_answer": "Kolmere",
        "truthful": i == 2,
        "status": "used",
        "fold": 1,
        "input_ids": [1, 2, 3],
        "pathway": "Q-Anchored",
        "metadata": json.dumps({"s_pop": i, "id": "not this"}),
    }
)


def wrapped(rows: Sequence[Any], data_first: bool) -> bytes:
    others = {"Domain": "Web", "VerifiedEval": False, "Version": 1.0}
    whole = {"Data": rows, **others} if data_first else {**others, "Data": rows}
    return json.dumps(whole, indent=2 if data_first else None).encode()


OWN_IDS, TRIVIA_IDS, HOTPOT_IDS = (
    ("own-0", "own-1", "own-2"),
    ("tc_0", "tc_1", "tc_2"),
    ("5a8b0", "5a8b1", "5a8b2"),
)
POPQA_IDS = ("70", "71", "72")
FLASHRAG = each(
    lambda i, q, a: {
        "id": f"test_{i}",
        "golden_answers": a,
        "question": f'"{q.replace(chr(34), chr(34) * 2)}"' if '"' in q else q,
        "metadata": {
            "subj": SUBJECTS[i],
            "prop": RELATIONS[i],
            "s_pop": 9,
            "id": "not this",
        },
    }
)


def dpr() -> bytes:
    """Question and Python list; what holds quotation marks is quoted once more than it should be."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t")
    for row in FLASHRAG:
        writer.writerow([row["question"], repr(row["golden_answers"])])
    return text.getvalue().encode()


SAMPLES = (
    Sample(
        "popqa-tsv", table(POPQA, "\t"), "PopQA, TSV", ids=POPQA_IDS, checked_end=False
    ),
    Sample("popqa-parquet", parquet(POPQA), "PopQA, Parquet", ids=POPQA_IDS),
    Sample("triviaqa", wrapped(TRIVIAQA, True), "TriviaQA, JSON list", ids=TRIVIA_IDS),
    Sample(
        "triviaqa-one-line",
        wrapped(TRIVIAQA, False),
        "TriviaQA, JSON list",
        ids=TRIVIA_IDS,
    ),
    Sample(
        "triviaqa-hub-lines",
        json_lines(TRIVIAQA_HUB),
        "TriviaQA (Hugging Face), JSON lines",
        ids=TRIVIA_IDS,
        checked_end=False,
    ),
    Sample(
        "triviaqa-hub-parquet",
        parquet(TRIVIAQA_HUB),
        "TriviaQA (Hugging Face), Parquet",
        ids=TRIVIA_IDS,
    ),
    Sample(
        "hotpotqa", json_list(HOTPOTQA), "HotpotQA, JSON list", FIRST_ONLY, HOTPOT_IDS
    ),
    Sample(
        "hotpotqa-hub-list",
        json_list(HOTPOTQA_HUB),
        "HotpotQA, JSON list",
        FIRST_ONLY,
        HOTPOT_IDS,
    ),
    Sample(
        "hotpotqa-hub-parquet",
        parquet(HOTPOTQA_HUB),
        "HotpotQA, Parquet",
        FIRST_ONLY,
        HOTPOT_IDS,
    ),
    Sample(
        "hotpotqa-simple", json_list(HOTPOTQA_SIMPLE), "HotpotQA, JSON list", FIRST_ONLY
    ),
    Sample("nq-lines", json_lines(NQ), "NQ-open, JSON lines", checked_end=False),
    Sample("nq-parquet", parquet(NQ), "NQ-open, Parquet"),
    Sample(
        "harness",
        json_lines(HARNESS),
        "lm-evaluation-harness, JSON lines",
        ids=("40", "41", "42"),
        checked_end=False,
    ),
    Sample(
        "own-lines",
        json_lines(OWN),
        "own columns, JSON lines",
        ids=OWN_IDS,
        checked_end=False,
    ),
    Sample("own-list", json_list(OWN), "own columns, JSON list", ids=OWN_IDS),
    Sample(
        "own-csv", table(OWN, ","), "own columns, CSV", ids=OWN_IDS, checked_end=False
    ),
    Sample(
        "own-semicolons",
        table(OWN, ";"),
        "own columns, CSV with semicolons",
        ids=OWN_IDS,
        checked_end=False,
    ),
    Sample(
        "flashrag",
        json_lines(FLASHRAG),
        "FlashRAG, JSON lines",
        ids=("test_0", "test_1", "test_2"),
        checked_end=False,
    ),
    Sample("dpr", dpr(), "DPR, TSV without a header", checked_end=False),
    Sample(
        "own-tsv", table(OWN, "\t"), "own columns, TSV", ids=OWN_IDS, checked_end=False
    ),
    Sample("own-parquet", parquet(OWN), "own columns, Parquet", ids=OWN_IDS),
    Sample(
        "run-items",
        parquet(ITEMS),
        "items of a run, Parquet",
        ids=("item-0", "item-1", "item-2"),
    ),
)


def write(
    folder: Path, content: str | bytes, name: str = "mine", packed: bool = False
) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
    return path


@dataclass(frozen=True)
class Whole:
    """A reading that was gone through."""

    questions: list[Question]
    reading: Reading

    @property
    def bad(self) -> list[tuple[int, str]]:
        return [(row.line, row.reason) for row in self.reading.bad_rows]


def read(path: Path, on_bad_row: str = "fail", **columns: str) -> Whole:
    reading = open_dataset(DatasetSpec("mine", path), on_bad_row, columns)
    return Whole(list(reading), reading)


def refusal(path: Path, on_bad_row: str = "fail", **columns: str) -> str:
    """The one line with which a file is refused."""
    try:
        read(path, on_bad_row, **columns)
    except UserError as error:
        return str(error)
    raise AssertionError(f"{path} was not refused")
