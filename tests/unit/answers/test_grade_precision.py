"""The grader against pairs that were labelled by reading: precision and recall.

The hard cases and the answers to the built-in atlas are complete here. Of real answers to the four public datasets only
the model's answer and the label are kept; questions and accepted answers are joined from the files beside the
repository.
"""

import csv
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from anchorscope.answers.grade import grade
from anchorscope.datasets.relations import load_atlas
from repo import SHARED_DATA

GRADED = Path(__file__).parent / "graded"
DATASETS = ("popqa", "triviaqa", "hotpotqa", "nq_open")
WANTED = 0.98
UNKNOWABLE = "missing-alias"
"""Right answers that no accepted answer says: no grader can know them."""
needs_data = pytest.mark.skipif(
    not all((SHARED_DATA / f"{name}.jsonl.gz").is_file() for name in DATASETS),
    reason="the datasets' files are not beside the repository (shared/data)",
)


@dataclass(frozen=True)
class Pair:
    """One answer with its label and what the grader says."""

    source: str
    sample: str
    question: str | None
    answer: str
    accepted: tuple[str, ...]
    right: bool
    kind: str

    @property
    def called_right(self) -> bool:
        return graded(self)


@cache
def graded(pair: Pair) -> bool:
    return grade(pair.answer, pair.accepted, pair.question)


def read_table(name: str) -> list[dict[str, str]]:
    with (GRADED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def hard_cases(file: str = "hard_cases.jsonl") -> tuple[Pair, ...]:
    rows = [
        json.loads(line)
        for line in (GRADED / file).read_text(encoding="utf-8").splitlines()
    ]
    pairs = []
    for row in rows:
        right, accepted = row["label"] == "right", tuple(row["accepted"])
        pairs.append(
            Pair(
                "hard cases",
                "hard",
                row["question"],
                row["model_answer"],
                accepted,
                right,
                row["kind"],
            )
        )
    return tuple(pairs)


@cache
def atlas_answers() -> tuple[Pair, ...]:
    questions = {question.item_id: question for question in load_atlas()}
    pairs = []
    for row in read_table("atlas_answers.tsv"):
        asked = questions[row["item_id"]]
        right = row["label"] == "right"
        pairs.append(
            Pair(
                "atlas",
                "first",
                asked.question,
                row["model_answer"],
                asked.answers,
                right,
                row["kind"],
            )
        )
    return tuple(pairs)


@cache
def real_answers() -> tuple[Pair, ...]:
    asked = {}
    for name in DATASETS:
        with gzip.open(
            SHARED_DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8"
        ) as file:
            for line in file:
                row = json.loads(line)
                asked[name, row["id"]] = (row["question"], tuple(row["answers"]))
    pairs = []
    for row in read_table("real_answers.tsv"):
        question, accepted = asked[row["dataset"], row["item_id"]]
        right = row["label"] == "right"
        pairs.append(
            Pair(
                row["dataset"],
                row["sample"],
                question,
                row["model_answer"],
                accepted,
                right,
                row["kind"],
            )
        )
    return tuple(pairs)


def precision_and_recall(pairs: Iterable[Pair]) -> tuple[float, float]:
    """Of the answers called right, how many are right; of the right ones, how many are called so."""
    told = [(pair.right, pair.called_right) for pair in pairs]
    hits = sum(right and called for right, called in told)
    return hits / sum(called for _, called in told), hits / sum(
        right for right, _ in told
    )


def knowable(pairs: Iterable[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.kind != UNKNOWABLE]


def mistakes(pairs: Iterable[Pair]) -> list[str]:
    return [
        f"{'called right' if pair.called_right else 'called wrong'}: {pair.kind}, {pair.source}, {pair.answer!r}"
        for pair in pairs
        if pair.called_right != pair.right
    ]


def test_what_is_complete_here() -> None:
    assert mistakes([*hard_cases(), *hard_cases("without_a_question.jsonl")]) == []
    assert min(precision_and_recall(atlas_answers())) >= WANTED, mistakes(
        atlas_answers()
    )


def test_adversarial_pairs() -> None:
    """Names of other places and people, other numbers, dates and units, and other ways to write the right ones."""
    pairs = hard_cases("adversarial.jsonl")
    assert len(pairs) >= 1000
    assert mistakes(pairs) == []


@pytest.mark.parametrize("town", [None, "Springfield"])
def test_a_code_stands_for_its_own_state_only(town: str | None) -> None:
    states = read_table("us_states.tsv")
    for wanted in states:
        name = town or wanted["capital"]
        for accepted in (f"{name}, {wanted['state']}", wanted["state"]):
            taken = [
                row["state"]
                for row in states
                if grade(f"{name}, {row['code']}", [accepted])
            ]
            assert taken == [wanted["state"]]


@needs_data
def test_all_pairs_that_can_be_known() -> None:
    real = knowable(real_answers())
    for pairs in (real, [*real, *knowable([*hard_cases(), *atlas_answers()])]):
        assert min(precision_and_recall(pairs)) >= WANTED, mistakes(pairs)


@needs_data
@pytest.mark.parametrize("dataset", ["popqa", "hotpotqa", "nq_open"])
def test_a_dataset_s_own_answer_is_right(dataset: str) -> None:
    with gzip.open(SHARED_DATA / f"{dataset}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [
            json.loads(line) for number, line in enumerate(file) if number % 20 == 0
        ]
    missed = [
        row["id"]
        for row in rows
        if not grade(row["answers"][0], row["answers"], row["question"])
    ]
    # those that look like a repetition of the question
    assert len(missed) <= 0.005 * len(rows), missed
