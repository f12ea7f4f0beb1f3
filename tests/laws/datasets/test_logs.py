"""Logs of inspect_ai and samples of lm-evaluation-harness are question files with answers and labels."""

from pathlib import Path
from typing import Any

import pytest

from anchorscope.datasets.formats import first_line, label_of
from anchorscope.errors import UserError
from eval_logs import DEFLATED, STORED, ZSTD, log, sample
from sample_files import HARNESS, json_lines, read, refusal, write

RIGHT = {
    "match": {"value": "C", "answer": "Lima", "explanation": "…", "history": []},
    "grade": {"value": 0.7},
    "left out": {"value": float("nan")},
}
WRONG = {
    "grade": {"value": [1, 2]},
    "match": {"value": "I", "answer": "Mary"},
    "includes": {"value": 1},
}
PERU = sample(
    1,
    "What is the capital\n of Peru?",
    "Lima",
    "Lima",
    scores=RIGHT,
    id="peru",
    metadata={"relation": "capital", "year": 1900, "answers": "no", "nested": {}},
)
DRACULA = sample(
    2,
    [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Who wrote Dracula?"},
                {"type": "image", "image": "data:"},
            ],
        },
    ],
    ["Bram Stoker", "Stoker"],
    [
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "text", "text": "\nMary Shelley.\nShe did."},
    ],
    scores=WRONG,
)


@pytest.mark.parametrize("method", [STORED, DEFLATED, ZSTD])
def test_a_log_is_read_as_questions_with_answers_and_labels(
    tmp_path: Path, method: int
) -> None:
    whole = read(write(tmp_path, log([PERU, DRACULA], method)))
    assert whole.reading.format == "own columns, inspect log"
    peru, dracula = whole.questions
    assert (peru.item_id, peru.question, peru.answers) == (
        "peru",
        "What is the capital of Peru?",
        ("Lima",),
    )
    assert (peru.model_answer, peru.truthful, peru.relation) == (
        "Lima",
        True,
        "capital",
    )
    assert peru.metadata == {
        "year": 1900,
        "score.match": True,
        "answer.match": "Lima",
        "score.grade": 0.7,
        "epoch": 1,
        "model": "mockllm/model",
    }
    assert (dracula.question, dracula.answers) == (
        "Who wrote Dracula?",
        ("Bram Stoker", "Stoker"),
    )
    assert (dracula.model_answer, dracula.truthful) == ("Mary Shelley.", False)


def test_another_scorer_decides_where_columns_say_so(tmp_path: Path) -> None:
    path = write(tmp_path, log([DRACULA]))
    (one,) = read(
        path, truthful="score.includes", model_answer="answer.match"
    ).questions
    assert (one.truthful, one.model_answer) == (True, "Mary")
    assert "has no column 'score.f1'" in refusal(path, truthful="score.f1")


def scored(*values: dict[str, Any]) -> list[dict[str, Any]]:
    """A sample for each, with these scores."""
    return [
        sample(
            number,
            "Q?",
            "a",
            "b",
            scores={name: {"value": value} for name, value in found.items()},
        )
        for number, found in enumerate(values, start=1)
    ]


def test_one_scorer_labels_the_whole_log(tmp_path: Path) -> None:
    two = log(
        scored(
            {"f1": 1, "match": "I"},
            {"f1": 0.4, "match": "C"},
            {"match": "C"},
            {"f1": 0},
        )
    )
    labels = [one.truthful for one in read(write(tmp_path, two)).questions]
    assert labels == [
        False,
        True,
        True,
        None,
    ]  # the fourth was left out by the scorer that decides
    only = read(
        write(tmp_path, log(scored({"f1": 1}, {"f1": 0.4}, {"f1": 0})))
    ).questions
    assert [one.truthful for one in only] == [None, None, None]
    path = write(
        tmp_path, log(scored({"match": "C", "other": 0}, {"match": "P", "other": 1}))
    )
    assert "sample 2: score.match is 'P', neither right nor wrong" in refusal(path)
    assert "--columns truthful=score.NAME" in refusal(path)
    assert [one.truthful for one in read(path, truthful="score.other").questions] == [
        False,
        True,
    ]


def test_one_metric_labels_all_samples_of_the_harness(tmp_path: Path) -> None:
    def row(**metrics: float) -> dict[str, Any]:
        return HARNESS[0] | {"metrics": [*metrics]} | metrics

    path = write(
        tmp_path,
        json_lines([row(f1=1.0, em=0.0, acc=1.0), row(f1=0.4, em=1.0, acc=0.0)]),
    )
    assert [one.truthful for one in read(path).questions] == [False, True]
    assert [one.truthful for one in read(path, truthful="acc").questions] == [
        True,
        False,
    ]
    assert "truthful is 0.4, neither right nor wrong" in refusal(path, truthful="f1")


def test_epochs_have_ids_of_their_own_and_a_sample_written_again_replaces_the_first(
    tmp_path: Path,
) -> None:
    again = DRACULA | {"target": "Stoker"}
    questions = read(
        write(tmp_path, log([PERU, DRACULA, PERU | {"epoch": 2}, again]))
    ).questions
    assert [one.item_id for one in questions] == ["peru", "2", "peru#2"]
    assert questions[1].answers == ("Stoker",)


UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"choices": ["3", "4"]}, "id 2 has choices: only free answers can be read"),
    (
        {"error": {"message": "Rate limit\nreached", "traceback": "…"}},
        "id 2 ended with an error: 'Rate limit",
    ),
    (
        {
            "input": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
            ]
        },
        "conversation of 2",
    ),
    ({"input": None}, "the question is absent"),
    ({"input": 3}, "question must be a string, not 3"),
]


@pytest.mark.parametrize(
    ("change", "reason"), UNREAD, ids=[reason for _, reason in UNREAD]
)
def test_a_sample_that_is_no_question_is_a_bad_row(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path, log([PERU, DRACULA | change, sample(3, "Q?", "a", "")]))
    whole = read(path, "skip")
    assert [one.item_id for one in whole.questions] == ["peru", "3"]
    ((number, told),) = whole.bad
    assert number == 2
    assert reason in told
    assert refusal(path).startswith(f"{path}, sample 2: ")


def test_an_archive_that_is_damaged_never_gives_other_rows(tmp_path: Path) -> None:
    good = log([PERU, DRACULA])
    wanted = read(write(tmp_path, good)).questions
    for cut in range(1, len(good), 37):  # from the end: the directory goes first
        assert (
            "cut-off" in refusal(write(tmp_path, good[:-cut])) or cut > len(good) - 40
        )
    for place in range(0, len(good), 11):
        changed = bytearray(good)
        changed[place] ^= 0x55
        try:
            found = read(write(tmp_path, bytes(changed)), "skip").questions
        except UserError:
            continue
        assert all(one in wanted for one in found)


def test_logged_samples_of_the_harness(tmp_path: Path) -> None:
    first, _, last = read(write(tmp_path, json_lines(HARNESS))).questions
    assert (first.model_answer, first.truthful, last.truthful) == (
        "Kolmere",
        False,
        True,
    )
    assert first.metadata == {"question_source": "http://x", "exact_match": 0.0}
    row = HARNESS[0]
    filtered = [
        row | {"filter": name, "filtered_resps": [text]}
        for name, text in (("strict", "a"), ("loose", "b\nc"))
    ]
    found = read(write(tmp_path, json_lines(filtered))).questions
    assert [(one.item_id, one.model_answer) for one in found] == [
        ("40 strict", "a"),
        ("40 loose", "b"),
    ]
    older = {key: value for key, value in row.items() if key != "metrics"} | {
        "target": "Ada Quill"
    }
    (one,) = read(write(tmp_path, json_lines([older]))).questions
    assert (one.truthful, one.answers) == (False, ("Ada Quill",))


NO_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"filtered_resps": [["-3.2", "False"], ["-1.0", "True"]]}, "no answer in words"),
    ({"doc": {"goal": "x"}}, "the document has no question; columns: ['goal']"),
    ({"doc": "x"}, "doc must be an object"),
]


@pytest.mark.parametrize(
    ("change", "reason"), NO_ANSWERS, ids=[reason for _, reason in NO_ANSWERS]
)
def test_a_sample_without_question_or_answer_is_a_bad_row(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(write(tmp_path, json_lines([HARNESS[0] | change])))


def test_the_answer_is_the_first_line_that_is_seen() -> None:
    assert first_line("<think>Peru?\nLima</think>\n\n Lima \nQuestion: …") == "Lima"
    assert (
        first_line("Peru?\nLima, surely.\n</think>\n\nLima") == "Lima"
    )  # the template opened the block
    assert first_line("<think>a</think>\n<think>b</think> Lima") == "Lima"
    assert first_line("Lima\nQuestion: <think>x</think> y") == "Lima"
    assert first_line("<think>and on") == first_line("  \n ") == ""
    scores = ("C", "I", 1.0, 0, True, "P", 0.5, None, [1])
    assert [*map(label_of, scores)] == [
        True,
        False,
        True,
        False,
        True,
        None,
        None,
        None,
        None,
    ]
