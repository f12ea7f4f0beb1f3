"""Answers decoded together: text, score and warnings are those of `Detector.score`, whatever runs beside."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from anchorscope.datasets.question import asked
from anchorscope.detectors.detector import Detector, Score
from anchorscope.detectors.features import CONFIDENCE
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.serve.model_thread import (
    AnswerJob,
    Draw,
    Record,
    WrittenAnswer,
    write_answers,
)
from detector_cases import OTHER, added, probe, setting_of, trained_on
from tiny_models import byte_tokenizer, tiny_model

QUESTIONS = (
    "Who wrote Dracula?",
    "What is the capital of Peru?",
    "???",
    "Who painted The Night Watch?",
    "Who?",
    "In which year did the long war between the two houses of the small kingdom in the north end?",
)
CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPOKEN = [*range(ord("a"), ord("q")), *b"  \n\xc3\xa9"]
"""Bytes that the model below says: letters, spaces, line breaks, and the two halves of é."""
PAIR = "oc"
"""Two letters that are one token."""


@cache
def talker() -> LanguageModel:
    """A tiny model that says letters, spaces, line breaks, and half letters too."""
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.add_tokens([PAIR])
    bytes_as_text = [bytes([one]).decode("latin-1") for one in SPOKEN]
    wanted = {
        tokenizer(one, add_special_tokens=False)["input_ids"][-1]
        for one in (PAIR, *bytes_as_text)
    }
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        for token in set(range(len(head))) - wanted:
            # never the highest of all
            head[token] = 0.3 * head[sorted(wanted)[token % len(wanted)]]
    return wrap(model, tokenizer, name="talker")


@cache
def detectors() -> dict[str, Detector]:
    """Detectors that read in decoding all they need, nothing of it, or a part of it; at every position."""
    lm = talker()
    every = (probe(), probe(OTHER, 3), probe(("question-only", "residual", 3)))
    columns = (*CONFIDENCE, "answer_tokens")
    made = {
        "probe": trained_on(lm),
        "probe, answer_end": trained_on(lm, setting=setting_of(lm, "answer_end")),
        "before the answer": trained_on(
            lm,
            setting=setting_of(lm, "answer_before"),
            fitted=added((probe(), probe(("question-only", "mlp", 2), 4))),
        ),
        "confidence": trained_on(lm, fitted=added((), CONFIDENCE), range=None),
        "other": trained_on(
            lm, fitted=added((probe(OTHER),), ("log_prob_mean",)), range=None
        ),
        "everything": trained_on(lm, fitted=added(every, columns)),
        "chat": trained_on(
            lm, setting=setting_of(lm, "final", "chat"), fitted=added(every, columns)
        ),
        "outside": replace(
            trained_on(lm), range=replace(trained_on(lm).range, limit=0.0, longest=10)
        ),  # type: ignore[type-var]
    }
    return {name: Detector(one, lm) for name, one in made.items()}


@cache
def offline(name: str, question: str) -> Score:
    return detectors()[name].score(question)


def same(found: Record, wanted: Score) -> None:
    assert (found["verdict"], found["warnings"]) == (
        wanted.verdict,
        list(wanted.warnings),
    )
    for name in ("log_odds", "truth_probability"):
        other = getattr(wanted, name)
        assert found[name] == (
            other if other is None else pytest.approx(other, abs=1e-4)
        )


def request(
    question: str, name: str = "everything", most: int | None = None, **draw: Any
) -> AnswerJob:
    longest = detectors()[name].trained.setting.max_new_tokens if most is None else most
    return AnswerJob(
        tokens=1,
        detector=name,
        question=asked(question),
        longest=longest,
        draw=Draw(**draw),
        risk=None,
    )


def run(*jobs: AnswerJob) -> list[WrittenAnswer]:
    """The answers of a batch."""
    answers = write_answers(detectors()[jobs[0].detector], jobs)
    assert all(isinstance(answer, WrittenAnswer) for answer in answers)
    return answers  # type: ignore[return-value]


@pytest.mark.parametrize("name", list(detectors()))
def test_together_and_alone_answers_are_those_of_offline_scoring(name: str) -> None:
    for questions in (QUESTIONS, QUESTIONS[1:2]):
        for question, answer in zip(
            questions, run(*(request(one, name) for one in questions)), strict=True
        ):
            wanted = offline(name, question)
            same(answer.score, wanted)
            assert answer.text == wanted.answer
            assert answer.reason == (
                "length"
                if any("truncated" in one for one in wanted.warnings)
                else "stop"
            )


def test_a_seed_gives_the_same_answer_in_any_batch() -> None:
    drawn = {"temperature": 1.2, "top_p": 0.9}
    wanted = request(QUESTIONS[1], most=12, seed=11, **drawn)
    (alone,) = run(wanted)
    others = [
        request(question, most=12, seed=number, **drawn)
        for number, question in enumerate(QUESTIONS)
    ]
    *rest, beside = run(*others, wanted)
    assert beside.text == alone.text
    assert beside.score["log_odds"] == pytest.approx(alone.score["log_odds"], abs=1e-4)
    assert len({one.text for one in rest}) > 2
    unseeded = [request(QUESTIONS[1], most=12, **drawn) for _ in range(4)]
    assert len({one.text for one in run(*unseeded)}) > 1


def test_a_stop_text_ends_the_answer_before_it_and_the_shorter_one_is_scored() -> None:
    for seed in range(3):
        whole = run(request(QUESTIONS[0], most=12, temperature=1.5, seed=seed))[0].text
        stop = whole[2:4]
        (answer,) = run(
            request(
                QUESTIONS[0], most=12, temperature=1.5, seed=seed, stop=("zz", stop)
            )
        )
        assert (answer.text, answer.reason) == (
            whole[: whole.find(stop)].strip(),
            "stop",
        )
        same(answer.score, detectors()["everything"].score(QUESTIONS[0], answer.text))


def test_a_question_that_does_not_fit_fails_alone() -> None:
    fits, other = write_answers(
        detectors()["probe"],
        [request(one, "probe") for one in (QUESTIONS[0], "Who " + "x" * 3000)],
    )
    assert isinstance(fits, WrittenAnswer)
    assert isinstance(other, UserError)
    assert re.search(
        "may take 3,.* tokens, and the model reads at most 2,048", str(other)
    )
