"""Facts and warnings say what happened to a dataset: whose answers, whose labels, balanced and grouped by what."""

import numpy as np

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import balanced_by, grouped_by, label_answers
from anchorscope.artefacts.schema import PATHWAY_SCHEMA, UNAVAILABLE_SCHEMA, empty
from anchorscope.datasets.question import Question
from anchorscope.items import Item
from anchorscope.models.language_model import ModelIdentity
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.recipe import make_recipe
from anchorscope.result_tables import counts_frame, items_frame
from anchorscope.results import DatasetResult, facts_in_words, run_warnings
from anchorscope.stats.streams import priorities

MODEL = ModelIdentity(
    "small",
    "small",
    "LlamaForCausalLM",
    4,
    32,
    1_000_000,
    "cpu",
    "float32",
    "f" * 64,
    "t" * 64,
)
NO_WAYS = empty(PATHWAY_SCHEMA)


def dataset(
    *,
    relations: int = 4,
    subjects: int | None = 400,
    supplied: int = 0,
    without: int = 0,
) -> DatasetResult:
    """What 400 questions hand over, labelled, drawn, grouped and split as in a run; every second answer is right."""
    questions = [
        Question(
            "mine",
            str(number),
            f"Who is number {number}?",
            ("Ann",),
            subject=f"s{number % subjects}" if subjects and number >= without else None,
            relation=f"r{number // 2 % relations}"
            if relations and number >= without
            else None,
            model_answer=("Ann", "Bob")[number % 2] if number < supplied else None,
            truthful=number % 2 == 0 if number < supplied else None,
        )
        for number in range(400)
    ]
    answers = [
        Answer(("Ann", "Bob")[number % 2], (1,), (-0.1,), "answered")
        for number in range(400)
    ]
    labels = label_answers(questions, answers, "relation", "subject", 1500, 0)
    items = [Item(*row, None) for row in zip(questions, answers, labels, strict=True)]
    used = [index for index, item in enumerate(items) if item.is_used]
    truth = np.array([bool(labels[index].truthful) for index in used])
    strata = truth_strata(truth, [questions[index].relation for index in used])
    order = priorities(0, "folds", [questions[index].item_id for index in used])
    fold = grouped_folds(
        np.array([labels[index].group for index in used]), strata, 5, order
    )
    sample = QuestionSample(questions, 400, 0, 0, 0)
    asked = [questions[index] for index in used]
    tables = {
        "items": items_frame(
            items, dict(zip(used, fold.tolist(), strict=True)), NO_WAYS, ("", "")
        ),
        "counts": counts_frame("mine", sample, items),
        "unavailable": empty(UNAVAILABLE_SCHEMA),
    }
    return DatasetResult(
        "mine", tables, balanced_by(asked, "relation"), grouped_by(asked, "subject")
    )


RECIPE = make_recipe({})


def facts(*results: DatasetResult) -> dict[str, str]:
    return facts_in_words(RECIPE, MODEL, (64, 64), results)


def warnings(*results: DatasetResult) -> list[str]:
    return run_warnings(RECIPE, MODEL, results, ())


def test_a_run_in_which_all_is_as_it_should_be_has_no_warning() -> None:
    plain = dataset()
    assert warnings(plain) == []
    told = facts(plain)
    assert told["answers"] == "400 generated (greedy, at most 16 tokens)"
    assert told["labels"] == "400 graded against the accepted answers"
    assert told["prompt"] == "few-shot, 3 examples"
    assert (
        told["balance"]
        == "true and false answers balanced within each relation; folds and bootstrap by subject"
    )


def test_supplied_answers_are_not_told_as_the_models_own() -> None:
    some, every = dataset(supplied=100), dataset(supplied=400)
    assert (
        facts(some)["answers"]
        == "300 generated (greedy, at most 16 tokens), 100 supplied"
    )
    assert (
        facts(some)["labels"] == "300 graded against the accepted answers, 100 supplied"
    )
    assert (facts(every)["answers"], facts(every)["labels"]) == (
        "400 supplied",
        "400 supplied",
    )
    assert "greedy" not in " ".join(facts(every).values())
    assert warnings(every) == [
        "400 of 400 answers were supplied: the probe reads the model's states on texts that it did not write"
    ]
    assert warnings(some)[0].startswith("100 of 400 answers were supplied")


def test_what_a_file_without_relations_and_subjects_cannot_give_is_told() -> None:
    bare = dataset(relations=0, subjects=None)
    assert (bare.balanced_by, bare.grouped_by) == ("dataset", "question")
    assert facts(bare)["balance"] == (
        "true and false answers balanced over the whole dataset; folds and bootstrap by single questions"
    )
    assert warnings(bare) == [
        "no relations: balanced over the whole dataset, so base rates of kinds of questions may be what the probe "
        "reads",
        "no subjects: every question is its own group, so questions about one thing may stand in several folds",
    ]
    partly = warnings(dataset(without=40))
    assert (
        partly[0]
        == "40 of 400 used questions have no relation: balanced as one relation"
    )
    assert partly[1].startswith(
        "40 of 400 used questions have no subject: each is its own group"
    )
    assert any(
        line.startswith("1 of 400 used questions has no")
        for line in warnings(dataset(relations=0, without=1))
    )
