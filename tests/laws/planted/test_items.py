"""Planted items: who knows what is counted exactly, on whole item sets, and no question is asked twice."""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.grade import grade
from anchorscope.answers.label import group_items
from anchorscope.datasets.catalog import open_dataset, parse_spec
from anchorscope.datasets.text import question_key
from planted_items import (
    CELLS,
    PATHWAYS,
    SHARES,
    PlantedItem,
    json_lines,
    most_items,
    planted_items,
    the_language,
)

WHOLE_ROUNDS = 2 * 48 * 5
"""Items of the question or answer pathway in which every phrase, object class and wording comes equally often."""


def information(
    items: Sequence[PlantedItem], seen: Callable[[PlantedItem], Hashable]
) -> float:
    """Bits about truth in what is seen, by counting."""
    both = Counter((seen(item), item.truthful) for item in items)
    some, truth = (
        Counter(seen(item) for item in items),
        Counter(item.truthful for item in items),
    )
    n = len(items)
    return sum(
        count / n * log2(count * n / (some[key] * truth[label]))
        for (key, label), count in both.items()
    )


def of(pathway: str, items: Sequence[PlantedItem]) -> list[PlantedItem]:
    return [item for item in items if item.pathway == pathway]


@pytest.fixture(scope="module")
def items() -> list[PlantedItem]:
    return planted_items(1200)


@pytest.mark.parametrize("pathway", PATHWAYS)
@pytest.mark.parametrize(
    "seen",
    [
        lambda item: item.subject,
        lambda item: item.relation,
        lambda item: (item.subject, item.relation),
        lambda item: item.question.replace(item.subject, "S").replace(
            item.relation, "R"
        ),
    ],
    ids=["subject", "relation", "fact", "wording"],
)
def test_a_question_says_nothing_about_truth(items, pathway, seen) -> None:
    assert information(of(pathway, items), seen) == pytest.approx(0, abs=1e-12)


def test_of_a_question_item_the_answer_says_nothing_and_with_its_question_everything(
    items,
) -> None:
    some = of("question", items)
    assert len(some) == WHOLE_ROUNDS
    for seen in (
        lambda item: item.model_answer.split()[0],
        lambda item: item.model_answer.split()[1:][0],
        lambda item: " ".join(item.model_answer.split()[1:]),
        lambda item: (item.relation, item.model_answer.split()[0]),
    ):
        assert information(some, seen) == pytest.approx(0, abs=1e-12)
    facts = the_language().facts
    matches = {
        item: facts[item.subject, item.relation] == item.model_answer.split()[0]
        for item in some
    }
    assert information(some, lambda item: matches[item]) == pytest.approx(1)
    assert all(matches[item] == item.truthful for item in some)


def test_of_an_answer_item_the_phrase_says_everything_and_no_single_word_anything(
    items,
) -> None:
    some = of("answer", items)
    assert len(some) == WHOLE_ROUNDS
    assert information(
        some, lambda item: " ".join(item.model_answer.split()[1:])
    ) == pytest.approx(1)
    for place in range(3):
        assert information(
            some, lambda item, at=place: item.model_answer.split()[at]
        ) == pytest.approx(0, abs=1e-12)
    assert not {item.model_answer.split()[0] for item in some} & set(
        the_language().objects
    )


def test_of_a_both_item_either_source_says_everything_and_the_object_alone_nothing(
    items,
) -> None:
    some, facts = of("both", items), the_language().facts
    assert information(
        some, lambda item: item.model_answer.split()[0]
    ) == pytest.approx(0, abs=1e-12)
    assert information(
        some, lambda item: " ".join(item.model_answer.split()[1:])
    ) == pytest.approx(1)
    assert all(
        (facts[item.subject, item.relation] == item.model_answer.split()[0])
        == item.truthful
        for item in some
    )


def test_no_question_is_asked_twice_and_there_are_groups_enough(items) -> None:
    for some in (items, planted_items(most_items(), seed=3)):
        assert len({question_key(item.question) for item in some}) == len(some)
        assert len({item.item_id for item in some}) == len(some)
    assert len({item.subject for item in items}) > 150


def test_seeds_draw_other_items_and_the_same_seed_the_same(items) -> None:
    assert planted_items(1200) == items
    assert {item.question for item in planted_items(1200, seed=1)} != {
        item.question for item in items
    }


@given(n=st.integers(1, 400), seed=st.integers(0, 9))
def test_shares_are_kept(n: int, seed: int) -> None:
    found = planted_items(n, seed)
    counts = Counter((item.pathway, item.truthful) for item in found)
    assert len(found) == n
    for cell in CELLS:
        assert abs(counts[cell.pathway, cell.truthful] - SHARES[cell.pathway] * n) < 1
    right = {
        item: the_language().facts[item.subject, item.relation]
        == item.model_answer.split()[0]
        for item in found
    }
    assert all(
        right[item] == item.truthful for item in found if item.pathway != "answer"
    )


def test_the_file_is_read_as_a_dataset_with_the_pathway_in_its_metadata(
    items, tmp_path: Path
) -> None:
    path = tmp_path / "planted.jsonl"
    path.write_text(json_lines(items), encoding="utf-8")
    assert (
        json.loads(path.read_text(encoding="utf-8").splitlines()[0])["pathway"]
        in PATHWAYS
    )
    questions = list(open_dataset(parse_spec(f"file:{path}")))
    assert [question.item_id for question in questions] == [
        item.item_id for item in items
    ]
    for question, item in zip(questions, items, strict=True):
        assert (question.question, question.subject, question.relation) == (
            item.question,
            item.subject,
            item.relation,
        )
        assert (question.model_answer, question.truthful) == (
            item.model_answer,
            item.truthful,
        )
        assert (question.answers, question.property_words) == (
            item.answers,
            (item.relation,),
        )
        assert question.metadata == {"pathway": item.pathway}
    groups = group_items(questions, [item.model_answer for item in items], "subject")
    assert len(set(groups.tolist())) == len({item.subject for item in items})


def test_the_accepted_answers_are_what_the_label_says(items) -> None:
    for item in items[:200]:
        assert grade(item.model_answer, item.answers, item.question) == item.truthful
