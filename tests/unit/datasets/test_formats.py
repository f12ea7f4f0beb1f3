"""Every format is recognised by its columns and gives the same questions; the real files, where they are at hand."""

import gzip
import json
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.answers.choose import is_yes_no
from anchorscope.datasets.formats import FORMATS
from anchorscope.datasets.question import Question, list_from_text
from anchorscope.errors import UserError
from repo import SHARED_DATA
from sample_files import (
    HOTPOTQA,
    ITEMS,
    OWN,
    POPQA,
    RELATIONS,
    SAMPLES,
    SUBJECTS,
    TRIVIAQA,
    TRIVIAQA_HUB,
    Sample,
    Whole,
    json_lines,
    json_list,
    parquet,
    read,
    refusal,
    wrapped,
    write,
)

NAMES = ["data", "data.jsonl", "data.csv", "data.parquet", "data.json.gz"]
EVERY = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])


def test_every_registered_format_has_a_sample() -> None:
    assert {sample.format.partition(",")[0] for sample in SAMPLES} == {form.name for form in FORMATS}


@EVERY
def test_a_format_is_recognised_from_its_content_and_read_as_it_was_written(tmp_path: Path, sample: Sample) -> None:
    """Under every name for texts; a Parquet file takes a process, and is read under one that lies."""
    names = ["data.csv"] if sample.content.startswith(b"PAR1") else NAMES
    for name in names:
        whole = read(write(tmp_path, sample.content, name))
        assert (whole.reading.format, whole.reading.rows, whole.bad) == (sample.format, 3, []), name
        assert tuple((question.question, question.answers) for question in whole.questions) == sample.expected
        assert tuple(question.item_id for question in whole.questions) == sample.ids
    packed = read(write(tmp_path, sample.content, packed=True))
    assert packed.questions == whole.questions
    assert packed.reading.format == sample.format


@EVERY
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, sample: Sample, data: st.DataObject) -> None:
    """Where the cut is between two rows of lines, nothing can tell; but no row is ever read in part."""
    packed = data.draw(st.booleans())
    whole = write(tmp_path, sample.content, packed=packed).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = write(tmp_path, whole[:cut])
    if packed or sample.checked_end:
        assert str(path) in refusal(path, "skip")
        assert str(path) in refusal(path, "fail")
        return
    try:
        read_in_part = read(path).questions
    except UserError:
        return
    pairs = tuple((question.question, question.answers) for question in read_in_part)
    assert pairs == sample.expected[: len(pairs)]
    assert whole[:cut].endswith(b"\n") or whole[cut:].startswith((b"\n", b"\r\n")) or whole[:cut].endswith(b"\r")


@pytest.mark.parametrize("name", ["own-lines", "own-csv", "popqa-tsv"])
def test_a_last_row_without_its_end_is_told_as_a_cut(tmp_path: Path, name: str) -> None:
    sample = next(sample for sample in SAMPLES if sample.name == name)
    for lost in (3, 7):
        for on_bad_row in ("fail", "skip"):
            assert "is cut off in the middle" in refusal(write(tmp_path, sample.content[:-lost]), on_bad_row)


def test_a_whole_last_row_needs_no_line_end(tmp_path: Path) -> None:
    for sample in SAMPLES:
        if not sample.checked_end:
            assert len(read(write(tmp_path, sample.content.rstrip())).questions) == 3


def test_popqa_tells_subject_relation_and_the_words_that_name_it(tmp_path: Path) -> None:
    for content in (parquet(POPQA), json_lines(POPQA)):
        questions = read(write(tmp_path, content)).questions
        assert tuple(question.subject for question in questions) == SUBJECTS
        assert tuple(question.relation for question in questions) == RELATIONS
        # The second question is not its relation's sentence, so its words are not known.
        assert [question.property_words for question in questions] == [("author",), (), ("city", "born")]
    first = read(write(tmp_path, next(s.content for s in SAMPLES if s.name == "popqa-tsv"))).questions[0]
    assert first.metadata == {"obj": "Ada Quill", "s_aliases": "[]", "s_pop": 5, "o_pop": 0}


def test_triviaqa_puts_the_value_first_and_numbers_repeated_ids(tmp_path: Path) -> None:
    for content in (wrapped([*TRIVIAQA, TRIVIAQA[0]], True), json_lines([*TRIVIAQA_HUB, TRIVIAQA_HUB[0]])):
        questions = read(write(tmp_path, content)).questions
        assert [question.item_id for question in questions] == ["tc_0", "tc_1", "tc_2", "tc_0#4"]
        assert questions[0].answers[0] == "Ada Quill"
        assert questions[0].metadata == {"question_source": "http://x", "answer_type": "WikipediaEntity"}


def test_a_split_without_answers_is_told(tmp_path: Path) -> None:
    hidden = [row | {"answer": {"aliases": [], "value": "<unk>"}} for row in TRIVIAQA_HUB]
    assert "there are no answers" in refusal(write(tmp_path, json_lines(hidden)))
    assert "the answer must be an object" in refusal(write(tmp_path, json_lines([*TRIVIAQA_HUB, {"answer": "x"}])))


def test_hotpotqa_keeps_its_answer_whole_and_its_type(tmp_path: Path) -> None:
    row = HOTPOTQA[0] | {"answer": "yes|no"}
    first = read(write(tmp_path, json_list([row]))).questions[0]
    assert first.answers == ("yes|no",)
    assert (first.metadata, first.relation) == ({"type": "bridge", "level": "hard"}, None)


def test_a_runs_own_items_bring_their_answers_and_labels(tmp_path: Path) -> None:
    third = read(write(tmp_path, parquet([*ITEMS, ITEMS[2]]))).questions[2]
    assert (third.model_answer, third.truthful, third.metadata) == ("Kolmere", True, {"s_pop": 2})
    assert (third.subject, third.property_words) == ("Ivo Brandt", ("city", "born"))
    assert "metadata is no JSON" in refusal(write(tmp_path, parquet([row | {"metadata": "{"} for row in ITEMS])))


def test_own_columns_carry_everything_else_as_metadata(tmp_path: Path) -> None:
    for content in (json_lines(OWN), parquet(OWN)):
        assert [q.metadata for q in read(write(tmp_path, content)).questions] == [{"year": 1900 + i} for i in range(3)]


@given(st.lists(st.text()))
def test_a_list_as_python_or_json_writes_it_is_read_back(strings: list[str]) -> None:
    assert list_from_text(json.dumps(strings)) == strings
    if not any("\ud800" <= character <= "\udfff" for string in strings for character in string):
        assert list_from_text(repr(strings)) == strings


@pytest.mark.parametrize("text", ["['a'", "['a' 'b']", "[f('a')]", "['a', ['b']]", "[" * 5000, "['a'] + ['b']", "[a]"])
def test_text_that_is_no_list_of_strings_is_none(text: str) -> None:
    assert list_from_text(text) is None


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
    "NQ-open.dev.head200.jsonl": ("NQ-open, JSON lines", 200),
    "triviaqa_sample.json": ("TriviaQA, JSON list", 1),
    "hotpot_dev_v1_simplified.head200.json": ("HotpotQA, JSON list", 200),
    "hotpot_dev_fullwiki_v1.head29.json": ("HotpotQA, JSON list", 29),
    "hotpot_dev_distractor_hf_schema.head100.json": ("HotpotQA, JSON list", 100),
}
IN_STEP = {
    "NQ-open.dev.head200.jsonl": "nq_open",
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


def test_popqa_in_all_its_forms() -> None:
    whole = normalised("popqa")
    assert all(question.property_words and question.relation for question in whole)
    assert sum(question.subject is None for question in whole) == 3
    by_text = {question.question: question for question in whole}
    for question in raw("popQA.head200.tsv"):
        same = by_text[question.question]
        assert (question.relation, question.property_words) == (same.relation, same.property_words)
        assert question.subject == same.subject
    by_id = {str(question.metadata["popqa_id"]): question for question in whole}
    for question in raw("popQA.head200.tsv"):
        same = by_id[question.item_id]
        assert (question.question, question.answers) == (same.question, same.answers)
        assert question.metadata["s_pop"] == same.metadata["s_pop"]


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
