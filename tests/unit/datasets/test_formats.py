"""Every format is recognised by its columns and gives the same questions; the real files, where they are at hand."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.datasets.formats import FORMATS
from anchorscope.datasets.question import list_from_text
from anchorscope.errors import UserError
from repo import SHARED_DATA
from sample_files import ITEMS, SAMPLES, Sample, parquet, read, refusal, write

NAMES = ["data", "data.jsonl", "data.csv", "data.parquet", "data.json.gz"]
EVERY = pytest.mark.parametrize(
    "sample", SAMPLES, ids=[sample.name for sample in SAMPLES]
)


def test_every_registered_format_has_a_sample() -> None:
    assert {sample.format.partition(",")[0] for sample in SAMPLES} == {
        form.name for form in FORMATS
    }


@EVERY
def test_a_format_is_recognised_from_its_content_and_read_as_it_was_written(
    tmp_path: Path, sample: Sample
) -> None:
    """Under every name for texts; a Parquet file takes a process, and is read under one that lies."""
    names = ["data.csv"] if sample.content.startswith(b"PAR1") else NAMES
    for name in names:
        whole = read(write(tmp_path, sample.content, name))
        assert (whole.reading.format, whole.reading.rows, whole.bad) == (
            sample.format,
            3,
            [],
        ), name
        assert (
            tuple((question.question, question.answers) for question in whole.questions)
            == sample.expected
        )
        assert tuple(question.item_id for question in whole.questions) == sample.ids
    packed = read(write(tmp_path, sample.content, packed=True))
    assert packed.questions == whole.questions
    assert packed.reading.format == sample.format


@EVERY
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_a_file_that_is_cut_off_is_refused(
    tmp_path: Path, sample: Sample, data: st.DataObject
) -> None:
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
    assert (
        whole[:cut].endswith(b"\n")
        or whole[cut:].startswith((b"\n", b"\r\n"))
        or whole[:cut].endswith(b"\r")
    )


def test_a_runs_own_items_bring_their_answers_and_labels(tmp_path: Path) -> None:
    third = read(write(tmp_path, parquet([*ITEMS, ITEMS[2]]))).questions[2]
    assert (third.model_answer, third.truthful, third.metadata) == (
        "Kolmere",
        True,
        {"s_pop": 2},
    )
    assert (third.subject, third.property_words) == ("Ivo Brandt", ("city", "born"))
    cut_off = [ITEMS[0] | {"status": "truncated", "truthful": None}, *ITEMS[1:]]
    assert [
        one.model_answer for one in read(write(tmp_path, parquet(cut_off))).questions
    ] == [None, *["Kolmere"] * 2]
    assert "metadata is no JSON" in refusal(
        write(tmp_path, parquet([row | {"metadata": "{"} for row in ITEMS]))
    )


@given(st.lists(st.text()))
def test_a_list_as_python_or_json_writes_it_is_read_back(strings: list[str]) -> None:
    assert list_from_text(json.dumps(strings)) == strings
    if not any(
        "\ud800" <= character <= "\udfff" for string in strings for character in string
    ):
        assert list_from_text(repr(strings)) == strings


@pytest.mark.parametrize(
    "text",
    [
        "['a'",
        "['a' 'b']",
        "[f('a')]",
        "['a', ['b']]",
        "[" * 5000,
        "['a'] + ['b']",
        "[a]",
    ],
)
def test_text_that_is_no_list_of_strings_is_none(text: str) -> None:
    assert list_from_text(text) is None


RAW = {
    "popQA.head200.tsv": ("PopQA, TSV", 200),
    "NQ-open.dev.head200.jsonl": ("NQ-open, JSON lines", 200),
    "triviaqa_sample.json": ("TriviaQA, JSON list", 1),
    "hotpot_dev_v1_simplified.head200.json": ("HotpotQA, JSON list", 200),
    "hotpot_dev_fullwiki_v1.head29.json": ("HotpotQA, JSON list", 29),
    "hotpot_dev_distractor_hf_schema.head100.json": ("HotpotQA, JSON list", 100),
}


@pytest.mark.skipif(
    not SHARED_DATA.is_dir(),
    reason="the question files are not beside the repository (shared/data)",
)
@pytest.mark.parametrize("name", RAW)
def test_every_sample_is_recognised_and_read_whole(name: str) -> None:
    whole = read(SHARED_DATA / "raw" / name)
    assert (whole.reading.format, len(whole.questions)) == RAW[name]
    assert whole.bad == []
