"""Answers that the model writes for several requests at once, a token at a time, so that other work can come between.

    for ended in write_answers(lm, [request_for_question(detector, "What is the capital of Peru?")], batch_tokens):
        for row, answer in ended:
            print(row, answer.text, answer.score)

Requests that are written together are of one `kind`: the same detector and the same sampling. Prompts, ends of answers,
the text that is scored and the score are those of `Detector.score`.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anchorscope.answers.generate import (
    CHAT,
    LINE,
    Ending,
    given_answers,
    longest_answer,
    spoken_answers,
    thinkers,
    tokens_before,
    with_thinking,
)
from anchorscope.answers.template import Prompt, build_prompts, decode_exactly, prefix_length
from anchorscope.datasets.question import Question, asked
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.trained import Score
from anchorscope.engine.decode import Decoded, DecodingBatch, Sampling
from anchorscope.engine.forward import compute_prefix
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.stats.streams import priorities


@dataclass(frozen=True)
class Draw:
    """How the tokens of an answer are chosen, and which texts end it."""

    temperature: float = 0.0
    """0 for the likeliest tokens."""
    top_p: float = 1.0
    seed: int | None = None
    """Sampled tokens depend on it; None for an unknown seed."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts."""


@dataclass(frozen=True)
class AnswerRequest:
    """One answer that is wanted, and scored."""

    detector: Detector
    question: Question
    prompt: Prompt
    max_new_tokens: int
    """Tokens of the answer itself."""
    room: int
    """Tokens that may come after the prompt, blank ones before the answer included."""
    draw: Draw = Draw()
    risk: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens that prompt and answer take at most."""
        return len(self.prompt.ids) + self.room

    @property
    def is_chat(self) -> bool:
        """Whether blank lines and thinking may come before the answer."""
        return self.detector.trained.setting.template.kind == "chat"

    @property
    def kind(self) -> tuple[object, ...]:
        """Requests of one kind can be decoded together."""
        return (id(self.detector), self.draw.temperature, self.draw.top_p)


def request_for_question(
    detector: Detector,
    question: str | Question,
    max_new_tokens: int | None = None,
    draw: Draw | None = None,
    risk: float | None = None,
) -> AnswerRequest:
    """An answer to a question in the detector's own prompt; at most the detector's own tokens."""
    setting, lm = detector.trained.setting, detector.session.lm
    detector.trained.threshold(risk)  # refused before anything is run
    most = setting.max_new_tokens if max_new_tokens is None else max_new_tokens
    if most < 1:
        raise UserError(f"An answer of at most {most} tokens is asked for; allowed: 1 or more.")
    given = asked(question) if isinstance(question, str) else question
    room = longest_answer(setting.template, most)
    (prompt,) = build_prompts(lm.tokenizer, [given], setting.template, lm.context)
    needed = prompt.left_out + len(prompt.ids) + room
    if lm.context is not None and needed > lm.context:
        raise UserError(
            f"Prompt and answer may take {needed:,} tokens, and the model reads at most {lm.context:,}; ask a shorter "
            f"question, or for a shorter answer."
        )
    return AnswerRequest(detector, given, prompt, most, room, draw or Draw(), risk)


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer that has ended, with its score."""

    text: str
    new_tokens: int
    """What the model wrote, blank lines and thinking before the answer included."""
    reason: str
    """`stop` where the answer ended, `length` where it is as long as it may be."""
    score: Score


def write_answers(
    lm: LanguageModel,
    requests: Sequence[AnswerRequest],
    batch_tokens: int,
    is_dropped: Callable[[int], bool] = lambda row: False,
) -> Iterator[list[tuple[int, WrittenAnswer | UserError]]]:
    """After every token the answers that have ended with it, by the number of their request; an error for one that
    could not be scored. At most `batch_tokens` tokens of prompts are read together; nobody waits for what is dropped.
    """
    with product_kernels():
        most = max(with_thinking(one.max_new_tokens) if one.is_chat else one.room for one in requests)
        decoding = _read_prompts(lm, requests, batch_tokens, most)
    steps = decoding.steps(most, Ending(lm, CHAT if requests[0].is_chat else LINE).is_end)
    waiting = set(range(len(requests)))
    while waiting:
        with product_kernels():
            is_last = next(steps, steps) is steps
            ended: list[tuple[int, WrittenAnswer | UserError]] = []
            for row in sorted(waiting):
                if is_dropped(row):
                    waiting.discard(row)
                elif (decoded := _ended(requests[row], decoding, row, is_last)) is not None:
                    waiting.discard(row)
                    ended.append((row, _written(requests[row], decoded)))
                decoding.finished[row] |= row not in waiting
        yield ended


def _read_prompts(lm: LanguageModel, requests: Sequence[AnswerRequest], batch_tokens: int, most: int) -> DecodingBatch:
    first, sampling = requests[0], None
    prefix = compute_prefix(lm, first.prompt.ids[: prefix_length([request.prompt for request in requests])])
    if first.draw.temperature > 0:
        seeds = [secrets.randbits(63) if one.draw.seed is None else one.draw.seed for one in requests]
        numbers = [priorities(seed, "answer asked for", [""])[0] for seed in seeds]
        sampling = Sampling(np.array(numbers, dtype=np.uint64), first.draw.temperature, first.draw.top_p)
    return DecodingBatch(lm, [one.prompt.ids for one in requests], prefix, most + 1, batch_tokens, sampling)


def _ended(request: AnswerRequest, decoding: DecodingBatch, row: int, is_last: bool) -> Decoded | None:
    """What the model wrote, if the answer has ended or is as long as it may be; one that thinks first may be longer."""
    room, most, lm = request.room, request.max_new_tokens, request.detector.session.lm
    ids, log_probs = tuple(decoding.tokens[row]), tuple(decoding.log_probs[row])
    decoded = Decoded(ids, log_probs, decoding.finished[row])
    is_long = request.is_chat and len(ids) > room
    if is_long and thinkers(lm.tokenizer, [request.prompt.ids], [decoded], most, lm.context):
        room = with_thinking(most)
    over = is_last or decoded.finished or len(ids) > room
    if not over and _before_stop(request, ids) is None:
        return None
    return Decoded(ids[:room], log_probs[:room], decoded.finished)


def _before_stop(request: AnswerRequest, ids: tuple[int, ...]) -> str | None:
    """The answer before its first stop text; None where it has none."""
    if not request.draw.stop:
        return None
    tokenizer = request.detector.session.lm.tokenizer
    start = tokens_before(tokenizer, ids) if request.is_chat else 0
    text = decode_exactly(tokenizer, ids[start : start + request.max_new_tokens])
    ends = [end for stop in request.draw.stop if (end := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else None


def _written(request: AnswerRequest, decoded: Decoded) -> WrittenAnswer | UserError:
    """The answer as `Detector.score` would have it, and its score."""
    session, template = request.detector.session, request.detector.trained.setting.template
    text = _before_stop(request, decoded.ids)
    if text is None:
        (answer,) = spoken_answers(session.lm.tokenizer, template, [decoded], request.max_new_tokens)
    else:
        (answer,) = given_answers(session.lm.tokenizer, template, [request.prompt], [text])
    try:
        items = session.located([request.question], [answer], [request.prompt])
        (score,) = request.detector.score_items(items, risk=request.risk)
    except UserError as error:
        return error
    return WrittenAnswer(answer.text, len(decoded.ids), "length" if answer.status == "truncated" else "stop", score)
