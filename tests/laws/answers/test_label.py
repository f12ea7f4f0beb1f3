"""Labels: graded or given, grouped, drawn; and a refusal that says what is missing."""

import pytest

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, label_answers, require_enough
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError


def asked(index: int, truthful: bool | None = None, relation: str | None = "capital") -> Question:
    return Question("d", str(index), f"Question {index}?", ("Paris",), f"s{index}", relation, truthful=truthful)


def said(text: str, status: str = "answered") -> Answer:
    return Answer(text=text, ids=(1,), log_probs=None, status=status)


def labelled(questions: list[Question], answers: list[Answer], **options: object) -> list[Label]:
    settings = {"balance": "relation", "group_by": "subject", "max_per_class": 100, "seed": 0, **options}
    return label_answers(questions, answers, **settings)  # type: ignore[arg-type]


def some(true: int, false: int, unused_true: int = 0, unused_false: int = 0) -> list[Label]:
    kinds = [
        (true, True, "used"),
        (false, False, "used"),
        (unused_true, True, "unbalanced"),
        (unused_false, False, "unbalanced"),
        (3, None, "empty"),
    ]
    return [Label(truth, 0, status, float(status == "used")) for count, truth, status in kinds for _ in range(count)]


def test_answers_are_graded_against_the_accepted_ones() -> None:
    labels = labelled([asked(0), asked(1)], [said("It is Paris."), said("Rome")])
    assert [label.truthful for label in labels] == [True, False]
    assert [label.status for label in labels] == ["used", "used"]
    assert [label.weight for label in labels] == [1, 1]


def test_a_label_that_is_given_wins_over_the_grade() -> None:
    labels = labelled([asked(0, truthful=False), asked(1, truthful=True)], [said("Paris"), said("Rome")])
    assert [label.truthful for label in labels] == [False, True]


def test_empty_and_truncated_answers_have_no_label_and_are_never_used() -> None:
    questions = [asked(0), asked(1), asked(2, truthful=True), asked(3, truthful=False), asked(4)]
    answers = [said("Paris"), said("Rome"), said("Paris", "truncated"), said("", "empty"), said("Oslo", "truncated")]
    for balance in ("relation", "dataset", "none"):
        labels = labelled(questions, answers, balance=balance)
        assert [label.status for label in labels] == ["used", "used", "truncated", "empty", "truncated"]
        assert [label.truthful for label in labels] == [True, False, None, None, None]
        assert [label.weight for label in labels] == [1, 1, 0, 0, 0]


def test_what_is_not_drawn_keeps_its_label_and_says_so() -> None:
    answers = [said("Paris"), said("Rome"), said("Rome"), said("Oslo")]
    labels = labelled([asked(index) for index in range(4)], answers)
    assert [label.truthful for label in labels] == [True, False, False, False]
    assert sorted(label.status for label in labels) == ["unbalanced", "unbalanced", "used", "used"]
    assert sum(label.weight for label in labels) == 4
    assert all((label.weight == 0) == (label.status == "unbalanced") for label in labels)


def test_a_relation_with_one_kind_of_answer_is_not_used() -> None:
    questions = [asked(0), asked(1), asked(2, relation="director"), asked(3, relation="director")]
    answers = [said("Paris"), said("Rome"), said("Rome"), said("Oslo")]
    assert [label.status for label in labelled(questions, answers)] == ["used", "used", "unbalanced", "unbalanced"]
    assert [label.status for label in labelled(questions, answers, balance="none")] == ["used"] * 4


def test_at_most_so_many_of_each_class_are_used() -> None:
    answers = [said("Paris" if index % 2 else "Rome") for index in range(20)]
    for balance in ("relation", "dataset", "none"):
        labels = labelled([asked(index) for index in range(20)], answers, balance=balance, max_per_class=3)
        used = [label.truthful for label in labels if label.status == "used"]
        assert (used.count(True), used.count(False)) == (3, 3)


def test_groups_come_from_the_subject_or_from_the_answer() -> None:
    questions, answers = [asked(0), asked(1), asked(0)], [said("Paris"), said("paris"), said("Rome")]
    assert [label.group for label in labelled(questions, answers)] == [0, 1, 0]
    assert [label.group for label in labelled(questions, answers, group_by="answer")] == [0, 0, 1]


def test_no_answer_at_all_gives_labels_and_no_crash() -> None:
    labels = labelled([asked(0), asked(1)], [said("", "empty"), said("x", "truncated")])
    assert [label.status for label in labels] == ["empty", "truncated"]


def test_enough_answers_pass() -> None:
    require_enough("atlas", some(30, 30), 30, "relation")


@pytest.mark.parametrize(("true", "false"), [(29, 30), (30, 29), (0, 100), (0, 0)])
def test_too_few_answers_are_refused_with_the_numbers(true: int, false: int) -> None:
    with pytest.raises(UserError) as refused:
        require_enough("atlas", some(true, false, unused_true=2, unused_false=5), 30, "relation")
    message = str(refused.value)
    assert message.startswith(f"Dataset 'atlas' has too few answers to train probes on: {true} true and {false} false")
    assert f"({true + 2} true and {false + 5} false before balancing), 30 of each are needed" in message
    assert "--limit" in message
    assert "\n" not in message


def test_a_wider_balance_is_proposed_only_where_it_would_help() -> None:
    with pytest.raises(UserError, match="--balance dataset"):
        require_enough("atlas", some(20, 20, unused_true=10, unused_false=10), 30, "relation")
    for labels, balance in [
        (some(20, 20, unused_true=9, unused_false=10), "relation"),
        (some(20, 20, unused_true=10, unused_false=10), "dataset"),
    ]:
        with pytest.raises(UserError) as refused:
            require_enough("atlas", labels, 30, balance)
        assert "--balance" not in str(refused.value)
