"""The grader against pairs that were labelled by reading: precision and recall, with intervals, by set and answer type.

The hard cases and the answers to the built-in atlas are complete here. Of real answers to the four public datasets only
the model's answer and the label are kept; questions and accepted answers are joined from the files beside the
repository. `pytest -s` prints the tables of docs/grading.md.
"""

import csv
import gzip
import json
import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from anchorscope.answers.grade import as_date, grade, numbers_in
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import words
from repo import SHARED_DATA

GRADED = Path(__file__).parent / "graded"
DATA = SHARED_DATA
DATASETS = ("popqa", "triviaqa", "hotpotqa", "nq_open")
WANTED = 0.98
UNKNOWABLE = "missing-alias"
"""Right answers that no accepted answer says: no grader can know them."""
needs_data = pytest.mark.skipif(
    not all((DATA / f"{name}.jsonl.gz").is_file() for name in DATASETS),
    reason="the datasets' files are not beside the repository (shared/data)",
)


@dataclass(frozen=True)
class Pair:
    """One answer with its label and what the grader says."""

    source: str
    sample: str
    question: str
    answer: str
    accepted: tuple[str, ...]
    right: bool
    kind: str

    @property
    def called_right(self) -> bool:
        return graded(self)

    @property
    def answer_type(self) -> str:
        if all(answer.lower() in ("yes", "no") for answer in self.accepted):
            return "yes/no"
        if any(as_date(answer) for answer in self.accepted):
            return "date"
        return "number" if any(numbers_in(answer).leads for answer in self.accepted) else "name"


@cache
def graded(pair: Pair) -> bool:
    return grade(pair.answer, pair.accepted, pair.question)


def read_table(name: str) -> list[dict[str, str]]:
    with (GRADED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def hard_cases() -> tuple[Pair, ...]:
    rows = [json.loads(line) for line in (GRADED / "hard_cases.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = []
    for row in rows:
        right, accepted = row["label"] == "right", tuple(row["accepted"])
        pairs.append(Pair("hard cases", "hard", row["question"], row["model_answer"], accepted, right, row["kind"]))
    return tuple(pairs)


@cache
def atlas_answers() -> tuple[Pair, ...]:
    questions = {question.item_id: question for question in load_atlas()}
    pairs = []
    for row in read_table("atlas_answers.tsv"):
        asked = questions[row["item_id"]]
        right = row["label"] == "right"
        pairs.append(Pair("atlas", "first", asked.question, row["model_answer"], asked.answers, right, row["kind"]))
    return tuple(pairs)


@cache
def real_answers() -> tuple[Pair, ...]:
    asked = {}
    for name in DATASETS:
        with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                asked[name, row["id"]] = (row["question"], tuple(row["answers"]))
    pairs = []
    for row in read_table("real_answers.tsv"):
        question, accepted = asked[row["dataset"], row["item_id"]]
        right = row["label"] == "right"
        pairs.append(Pair(row["dataset"], row["sample"], question, row["model_answer"], accepted, right, row["kind"]))
    return tuple(pairs)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    z, share = 1.959964, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Score:
    """How the grader does on some pairs."""

    n: int
    hits: int
    called: int
    right: int

    @property
    def precision(self) -> float:
        return self.hits / self.called if self.called else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.right if self.right else 1.0

    def row(self, name: str) -> str:
        shares = ((self.precision, self.hits, self.called), (self.recall, self.hits, self.right))
        cells = [f"{share:.3f} ({wilson(hits, n)[0]:.3f}–{wilson(hits, n)[1]:.3f})" for share, hits, n in shares]
        return f"| {name} | {self.n} | {self.right} | {' | '.join(cells)} |"


def score(pairs: Iterable[Pair]) -> Score:
    told = [(pair.right, pair.called_right) for pair in pairs]
    hits = sum(right and called for right, called in told)
    return Score(len(told), hits, sum(called for _, called in told), sum(right for right, _ in told))


def knowable(pairs: Iterable[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.kind != UNKNOWABLE]


def show(title: str, pairs: Iterable[Pair], key: Callable[[Pair], str]) -> None:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair), []).append(pair)
    lines = [score(group).row(name) for name, group in sorted(groups.items())]
    print("\n".join(["", f"| {title} | pairs | right | precision | recall |", "|---|---|---|---|---|", *lines]))  # noqa: T201


def mistakes(pairs: Iterable[Pair]) -> list[str]:
    return [
        f"{'called right' if pair.called_right else 'called wrong'}: {pair.kind}, {pair.source}, {pair.answer!r}"
        for pair in pairs
        if pair.called_right != pair.right
    ]


@pytest.mark.parametrize("pairs", [hard_cases, atlas_answers])
def test_what_is_complete_here(pairs: Callable[[], tuple[Pair, ...]]) -> None:
    found = score(pairs())
    assert found.precision >= WANTED, mistakes(pairs())
    assert found.recall >= WANTED, mistakes(pairs())


@needs_data
def test_all_pairs_together() -> None:
    real, everything = real_answers(), [*real_answers(), *hard_cases(), *atlas_answers()]
    show("set", [*knowable(everything)], lambda pair: pair.source)
    show("answer type", knowable(everything), lambda pair: pair.answer_type)
    show("real answers", knowable(real), lambda pair: pair.sample)
    for name, pairs in (
        ("all that can be known", knowable(everything)),
        ("all", everything),
        ("real answers that can be known", knowable(real)),
        ("all real answers", real),
    ):
        print(score(pairs).row(name))  # noqa: T201
    print("\n".join(mistakes(everything)))  # noqa: T201
    for pairs in (knowable(everything), knowable(real)):
        assert score(pairs).precision >= WANTED, mistakes(pairs)
        assert score(pairs).recall >= WANTED, mistakes(pairs)


@needs_data
@pytest.mark.parametrize("dataset", ["popqa", "hotpotqa", "nq_open"])
def test_a_dataset_s_own_answer_is_right(dataset: str) -> None:
    with gzip.open(DATA / f"{dataset}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for number, line in enumerate(file) if number % 5 == 0]
    missed = [row["id"] for row in rows if not grade(row["answers"][0], row["answers"], row["question"])]
    assert len(missed) <= 0.005 * len(rows), missed  # those that look like a repetition of the question


def plain(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


VARIANTS: dict[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "upper case": str.upper,
    "no accents": plain,
    "decomposed accents": lambda text: unicodedata.normalize("NFD", text),
    "quoted": lambda text: f"“{text}”",
    "full stop": lambda text: text if text.endswith((".", "+", "#")) else f"{text}.",
    "an article": lambda text: f"The {text}",
    "white space": lambda text: f"\t{text.replace(' ', '  ')} ",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_how_an_answer_is_written_does_not_matter(variant: str) -> None:
    for pair in [*hard_cases(), *atlas_answers()]:
        if not words(pair.answer) or (variant == "an article" and pair.answer_type == "yes/no"):
            continue  # an answer without any word must be the same to the letter; nobody says "the yes"
        written = VARIANTS[variant](pair.answer)
        assert grade(written, pair.accepted, pair.question) == pair.called_right, (written, pair)
