"""Sampled answers to questions: as many as asked, each question's own, and the same whoever else is asked."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest

from anchorscope.answers.generate import Answer
from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers, run_samples
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.decoding import SamplesPass, plan_answers
from anchorscope.progress import Silent

QUESTIONS = [
    Question("facts", f"item-{index}", f"Where is {place}?", ("x",), model_answer="Bo" if index == 1 else None)
    for index, place in enumerate(("Ada", "Bolton", "Cix", "Dunwich"))
]


def planned(lm: LanguageModel, questions: Sequence[Question], n_samples: int, seed: int = 0) -> SamplesPass:
    asked = plan_answers(questions, lm.tokenizer, FEW_SHOT_TEMPLATE, 6, 1000)
    return SamplesPass(asked, n_samples, seed, temperature=0.7)


def samples(lm: LanguageModel, work: SamplesPass) -> list[list[Answer]]:
    return run_samples(LocalExecutor(lambda: lm), pickle.loads(pickle.dumps(work)), Silent())


def ids(answers: Sequence[Sequence[Answer]]) -> list[list[tuple[int, ...]]]:
    return [[one.ids for one in some] for some in answers]


@pytest.fixture(scope="module")
def sampled(tiny_llama: LanguageModel) -> list[list[Answer]]:
    return samples(tiny_llama, planned(tiny_llama, QUESTIONS, 4))


def test_every_question_has_as_many_answers_as_asked_whatever_it_brings(sampled: list[list[Answer]]) -> None:
    assert [len(some) for some in sampled] == [4] * 4
    every = [one for some in sampled for one in some]
    assert all(one.log_probs is not None and len(one.log_probs) == len(one.ids) for one in every)
    assert len({one.ids for one in every}) > 12  # they are drawn, and differ within a question and between questions


def test_samples_hang_on_seed_item_and_number_only(tiny_llama: LanguageModel, sampled: list[list[Answer]]) -> None:
    some = samples(tiny_llama, planned(tiny_llama, [QUESTIONS[2], QUESTIONS[0]], 2))
    assert ids(some) == [ids(sampled)[2][:2], ids(sampled)[0][:2]]  # fewer questions, another order, fewer samples
    assert ids(samples(tiny_llama, planned(tiny_llama, QUESTIONS, 4, seed=1))) != ids(sampled)
    other = replace(QUESTIONS[0], item_id="another")
    assert ids(samples(tiny_llama, planned(tiny_llama, [other], 4)))[0] != ids(sampled)[0]


def test_at_a_low_temperature_all_samples_are_the_greedy_answer(tiny_llama: LanguageModel) -> None:
    asked = [replace(question, model_answer=None) for question in QUESTIONS]
    work = replace(planned(tiny_llama, asked, 2), temperature=1e-6)
    greedy = run_answers(LocalExecutor(lambda: tiny_llama), work.asked, Silent())
    for some, wanted in zip(samples(tiny_llama, work), greedy, strict=True):
        assert [(one.text, one.ids, one.status) for one in some] == [(wanted.text, wanted.ids, wanted.status)] * 2


def test_no_samples_are_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match="0 samples of each answer"):
        samples(tiny_llama, planned(tiny_llama, QUESTIONS, 0))
