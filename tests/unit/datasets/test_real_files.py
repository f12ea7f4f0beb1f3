"""The real datasets, and samples of every original format, where they lie beside the project, not in it."""

import gzip
import json
import time
from functools import cache

import pytest

from anchorscope.answers.choose import is_yes_no
from anchorscope.datasets.question import Question
from repo import SHARED_DATA
from sample_files import Whole, read, refusal

SHARED = SHARED_DATA
MISSING = f"needs the question files of {SHARED}, no part of the project"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=MISSING)
COUNTS = {
    "popqa": 14267,
    "nq_open": 3610,
    "nq_open_train_subset": 8757,
    "triviaqa": 11313,
    "triviaqa_train_subset": 8837,
    "hotpotqa": 7405,
}
RAW = {
    "popQA.head200.tsv": ("PopQA, TSV", 200),
    "popqa_ragvsft_queries.head200.jsonl": ("PopQA (RAGvsFT), JSON lines", 200),
    "popqa_ragvsft_22.test.head200.json": ("PopQA (RAGvsFT), JSON list", 200),
    "flashrag_popqa_test.head200.jsonl": ("FlashRAG, JSON lines", 200),
    "flashrag_triviaqa_test.head200.jsonl": ("FlashRAG, JSON lines", 200),
    "NQ-open.dev.head200.jsonl": ("NQ-open, JSON lines", 200),
    "topics.dpr.nq.dev.head200.txt": ("DPR, TSV without a header", 200),
    "topics.dpr.trivia.test.head200.txt": ("DPR, TSV without a header", 200),
    "topics.dpr.trivia.dev.head200.txt": ("DPR, TSV without a header", 200),
    "triviaqa_sample.json": ("TriviaQA, JSON list", 1),
    "hotpot_dev_v1_simplified.head200.json": ("HotpotQA, JSON list", 200),
    "hotpot_dev_fullwiki_v1.head29.json": ("HotpotQA, JSON list", 29),
    "hotpot_dev_distractor_hf_schema.head100.json": ("HotpotQA, JSON list", 100),
}
IN_STEP = {
    "NQ-open.dev.head200.jsonl": "nq_open",
    "topics.dpr.nq.dev.head200.txt": "nq_open_train_subset",
    "topics.dpr.trivia.test.head200.txt": "triviaqa",
    "topics.dpr.trivia.dev.head200.txt": "triviaqa_train_subset",
    "hotpot_dev_v1_simplified.head200.json": "hotpotqa",
    "hotpot_dev_fullwiki_v1.head29.json": "hotpotqa",
    "hotpot_dev_distractor_hf_schema.head100.json": "hotpotqa",
}
"""Samples whose rows are the first ones of a normalised file."""


@cache
def whole_of(name: str) -> tuple[Whole, float]:
    """Everything in a file, and the processor time that it took; a file is read once."""
    began = time.process_time()
    return read(SHARED / name), time.process_time() - began


def raw(name: str) -> list[Question]:
    return whole_of(f"raw/{name}")[0].questions


def normalised(name: str) -> list[Question]:
    return whole_of(f"{name}.jsonl.gz")[0].questions


@pytest.mark.parametrize("name", COUNTS)
def test_the_normalised_files_are_read_whole(name: str) -> None:
    whole, seconds = whole_of(f"{name}.jsonl.gz")
    assert seconds < 10
    assert (whole.reading.format, whole.reading.rows, whole.bad) == ("own columns, JSON lines", COUNTS[name], [])
    with gzip.open(SHARED / f"{name}.jsonl.gz") as file:
        for question, line in zip(whole.questions, file, strict=True):
            row = json.loads(line)
            assert (question.item_id, question.answers) == (row["id"], tuple(row["answers"]))
            assert question.question == " ".join(row["question"].split())


@pytest.mark.parametrize("name", RAW)
def test_every_sample_is_recognised_and_read_whole(name: str) -> None:
    whole, _ = whole_of(f"raw/{name}")
    assert (whole.reading.format, len(whole.questions)) == RAW[name]
    assert whole.bad == []


@pytest.mark.parametrize("name", IN_STEP)
def test_samples_agree_with_the_normalised_files(name: str) -> None:
    for question, expected in zip(raw(name), normalised(IN_STEP[name]), strict=False):
        assert (question.question, question.answers) == (expected.question, expected.answers)


def test_the_entity_list_is_no_question_file() -> None:
    told = refusal(SHARED / "raw" / "popqa_ragvsft_22.entity.head200.json", "skip")
    assert "columns found: ['query_id', 'wiki_title', 'entity_id']" in told


def test_popqa_in_all_its_forms() -> None:
    whole = normalised("popqa")
    assert all(question.property_words and question.relation for question in whole)
    assert sum(question.subject is None for question in whole) == 3
    by_text = {question.question: question for question in whole}
    for name in (
        "popQA.head200.tsv",
        "popqa_ragvsft_queries.head200.jsonl",
        "popqa_ragvsft_22.test.head200.json",
        "flashrag_popqa_test.head200.jsonl",
    ):
        for question in raw(name):
            same = by_text[question.question]
            assert (question.relation, question.property_words) == (same.relation, same.property_words)
            assert question.subject == same.subject
    by_id = {str(question.metadata["popqa_id"]): question for question in whole}
    for question in raw("popQA.head200.tsv"):
        same = by_id[question.item_id]
        assert (question.question, question.answers) == (same.question, same.answers)
        assert question.metadata["s_pop"] == same.metadata["s_pop"]


def test_the_second_layer_of_quotes_is_undone() -> None:
    by_text = {question.question: question for question in normalised("triviaqa")}
    questions = raw("flashrag_triviaqa_test.head200.jsonl")
    assert sum('"' in question.question for question in questions) > 5
    assert all(by_text[question.question].answers == question.answers for question in questions)


def test_the_official_triviaqa_sample_has_its_value_first() -> None:
    (question,) = raw("triviaqa_sample.json")
    assert (question.item_id, len(question.answers)) == ("tc_33", 5)
    assert question.answers[0] == question.answers[0].title() != question.answers[1]
    assert question.metadata["answer_type"] == "WikipediaEntity"


def test_the_yes_no_questions_of_hotpotqa_are_found() -> None:
    assert sum(map(is_yes_no, normalised("hotpotqa"))) == 458
    assert sum(map(is_yes_no, normalised("popqa"))) == 0


def test_hotpotqa_samples_carry_ids_types_and_levels() -> None:
    expected = normalised("hotpotqa")
    official = raw("hotpot_dev_fullwiki_v1.head29.json")
    assert [question.item_id for question in official] == [question.item_id for question in expected[:29]]
    assert {question.metadata["level"] for question in official} == {"hard"}
    kinds = [question.metadata["type"] for question in raw("hotpot_dev_v1_simplified.head200.json")]
    assert kinds == [question.metadata["type"] for question in expected[:200]]
