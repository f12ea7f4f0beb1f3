"""The model's context is respected by whoever builds a prompt: what does not fit is counted and never run.

The model here has a learned table of 260 positions, so that a token too many ends in an error; a token is a byte.
"""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError
from anchorscope.evidence.further_runs import ItemPasses, truth_column
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.interventions import plan_experiment, plan_rewrite
from anchorscope.plan.passes import plan_answers, planner_for
from anchorscope.progress import Silent
from anchorscope.spans.locate import locate_fitting
from made_items import make_setting
from tiny_models import byte_tokenizer, tiny_model

CONTEXT, ROOM = 260, 8
SHORT = len(FEW_SHOT_TEMPLATE.text(""))
"""Tokens of a prompt without its question."""
LEFT = CONTEXT - SHORT - ROOM
"""The longest question that fits."""


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return wrap(
        tiny_model("gpt2", max_position_embeddings=CONTEXT),
        byte_tokenizer(),
        name="short",
    )


def ask(text: str, said: str | None = None) -> Question:
    return Question("d", f"{len(text)} {said}"[:40], text, ("x",), model_answer=said)


def filled(size: int) -> str:
    return ("Who was " + "A" * size)[: size - 1] + "?"


def answered(lm: LanguageModel, questions: list[Question]) -> list[Answer]:
    work = plan_answers(
        questions, lm.tokenizer, FEW_SHOT_TEMPLATE, ROOM, 4000, lm.context
    )
    return run_answers(LocalExecutor(lambda: lm), work, Silent())


def test_a_question_fits_up_to_the_last_token(lm: LanguageModel) -> None:
    one, other, short = answered(
        lm, [ask(filled(LEFT)), ask(filled(LEFT + 1)), ask("Who?")]
    )
    assert one.status != "too_long"
    assert other == Answer("", (), None, "too_long", needs=CONTEXT + 1)
    assert short.ids == answered(lm, [ask("Who?")])[0].ids


def test_a_given_answer_has_to_fit_as_well(lm: LanguageModel) -> None:
    questions = [
        ask("Who?", "b" * (CONTEXT - SHORT - 5)),
        ask("Who?", "b" * (CONTEXT - SHORT - 4)),
        ask("Who?", "Bo"),
    ]
    fits, long, short = answered(lm, questions)
    assert [fits.status, long.status, short.status] == [
        "answered",
        "too_long",
        "answered",
    ]
    assert long.needs == CONTEXT + 1
    assert long.text == "b" * (CONTEXT - SHORT - 4)  # the user's own text is not lost
    assert not long.ids


def items_of(lm: LanguageModel, questions: list[Question]) -> list[Item]:
    answers = answered(lm, questions)
    located = locate_fitting(
        lm.tokenizer, FEW_SHOT_TEMPLATE, questions, "auto", answers
    )
    return [
        Item(*row)
        for row in zip(
            questions, answers, [Label(True, 0, "used", 1.0)] * 9, located, strict=False
        )
    ]


def test_texts_that_are_written_anew_and_do_not_fit_are_not_run(
    lm: LanguageModel,
) -> None:
    names = ["Al", "Bo", "Cy", "M" * (LEFT - 20)]
    items = items_of(
        lm,
        [
            replace(ask(f"Who is {name} to Lu?", "Bo"), subject=name, relation="r")
            for name in names
        ],
    )
    setting = make_setting(
        ("final",), lambda: Writer(lm.tokenizer, FEW_SHOT_TEMPLATE), context=CONTEXT
    )
    patch = replace(INTERVENTIONS["patch-random"], max_items=None)
    every = plan_rewrite(patch, items, replace(setting, context=None))
    some = plan_rewrite(
        patch, items, replace(setting, context=len(items[0].located.input_ids) + 1)
    )
    assert {len(run.sequence.ids) for run in some.runs} == {
        len(items[0].located.input_ids)
    }
    assert some.too_long == len(every.runs) - len(some.runs) > 0
    _, missing = plan_experiment(
        [patch], items, replace(setting, context=100), (None,) * 4, 4
    )
    assert "do not fit the model's context of 100 tokens" in missing[0].reason


def test_p_true_of_items_that_do_not_fit_is_the_median_of_the_others(
    lm: LanguageModel,
) -> None:
    wide = wrap(
        tiny_model("gpt2", max_position_embeddings=700), byte_tokenizer(), name="wide"
    )
    items = items_of(
        wide, [ask("Who is Al?", "Bo"), ask("Who is Bo?", "Al"), ask(filled(300), "Bo")]
    )
    setting = make_setting(
        ("final",), lambda: Writer(wide.tokenizer, FEW_SHOT_TEMPLATE)
    )
    passes = ItemPasses(
        LocalExecutor(lambda: wide), planner_for(wide), items, setting, (0, 0), Silent()
    )
    found = truth_column(passes)["p_true"]
    assert np.isfinite(found).all()
    assert found[2] == np.median(found[:2])
    alone = truth_column(replace(passes, items=items[:2]))["p_true"]
    assert np.allclose(alone, found[:2], atol=1e-5)
    with pytest.raises(UserError, match="leave detection out of --keep"):
        truth_column(replace(passes, planner=replace(passes.planner, context=300)))
