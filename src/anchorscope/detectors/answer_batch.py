"""Answers that the model writes for several requests at once, token by token, with the text that can be shown so far.

    batch = AnswerBatch(lm, [request_for_question(detector, "What is the capital of Peru?")], batch_tokens)
    while not batch.is_over:
        for piece in batch.step():
            print(piece.text, piece.score)

A batch holds requests of one `kind`: the same detector and the same sampling. Prompts, ends of answers, the text that
is scored and the score are those of `Detector.score`.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from anchorscope.answers.generate import (
    CHAT,
    LINE,
    TEXT,
    Answer,
    Ending,
    given_answers,
    longest_answer,
    spoken_answers,
    thinkers,
    tokens_before,
    with_thinking,
)
from anchorscope.answers.template import OPEN, Prompt, build_prompts, decode_exactly, prefix_length
from anchorscope.datasets.question import Question
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.trained import Score
from anchorscope.engine.decode import Decoded, DecodingBatch, Sampling
from anchorscope.engine.forward import compute_prefix
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.spans.locate import UNFINISHED, prefix_texts
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

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature is {self.temperature}; allowed: 0 for the likeliest tokens, or above.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}; allowed: above 0 and up to 1.")
        if not all(self.stop):
            raise UserError("A stop text is empty; give at least one character, or leave it out.")


@dataclass(frozen=True)
class AnswerRequest:
    """One answer that is wanted: made by `request_for_question` or `request_for_prompt`."""

    ids: tuple[int, ...]
    """The prompt."""
    max_new_tokens: int
    """Tokens of the answer itself."""
    room: int
    """Tokens that may come after the prompt, blank ones before the answer included."""
    draw: Draw = Draw()
    detector: Detector | None = None
    """Scores the answer; None for an answer that is not scored."""
    risk: float | None = None
    question: Question | None = None
    prompt: Prompt | None = None

    @property
    def tokens(self) -> int:
        """Tokens that prompt and answer take at most."""
        return len(self.ids) + self.room

    @property
    def ending(self) -> str:
        """Where the answer ends, see `answers/generate.py`."""
        if self.detector is None:
            return TEXT
        return CHAT if self.detector.trained.setting.template.kind == "chat" else LINE

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
    """An answer to a question in the detector's own prompt, which is scored; at most the detector's own tokens."""
    setting, lm = detector.trained.setting, detector.session.lm
    detector.trained.threshold(risk)  # refused before anything is run
    most = _refuse_no_tokens(setting.max_new_tokens if max_new_tokens is None else max_new_tokens)
    given = asked(question) if isinstance(question, str) else question
    room = longest_answer(setting.template, most)
    (prompt,) = build_prompts(lm.tokenizer, [given], setting.template, lm.context)
    _refuse_too_long(prompt.left_out + len(prompt.ids) + room, lm.context)
    return AnswerRequest(prompt.ids, most, room, draw or Draw(), detector, risk, given, prompt)


def request_for_prompt(
    lm: LanguageModel, ids: tuple[int, ...], max_new_tokens: int, draw: Draw | None = None
) -> AnswerRequest:
    """A text that follows a prompt's tokens; it is not scored."""
    if not ids:
        raise UserError("The prompt is empty; give at least one token.")
    _refuse_too_long(len(ids) + _refuse_no_tokens(max_new_tokens), lm.context)
    return AnswerRequest(ids, max_new_tokens, max_new_tokens, draw or Draw())


def _refuse_no_tokens(max_new_tokens: int) -> int:
    if max_new_tokens < 1:
        raise UserError(f"An answer of at most {max_new_tokens} tokens is asked for; allowed: 1 or more.")
    return max_new_tokens


def _refuse_too_long(needs: int, context: int | None) -> None:
    if context is not None and needs > context:
        raise UserError(
            f"Prompt and answer may take {needs:,} tokens, and the model reads at most {context:,}; ask a shorter "
            f"question, or for a shorter answer."
        )


@dataclass(frozen=True)
class Piece:
    """New text of one answer."""

    row: int
    """Which request of the batch."""
    text: str
    """New characters, whole ones only; may be empty."""
    new_tokens: int
    """So far."""
    reason: str | None = None
    """None before the end; `stop` where the answer ended, `length` where it is as long as it may be."""
    score: Score | None = None
    """With the last piece, where a question was asked."""
    error: UserError | None = None
    """Why this answer, and no other, could not be scored."""


class AnswerText:
    """The text of an answer while its tokens arrive: whole characters only, and nothing that a later token can change.

    An answer to a question is shown without the white space around it and without blank lines and thinking before it:
    put together, the pieces are the text that is scored.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], strips: bool, chat: bool, most: int) -> None:
        """`strips` leaves out white space around the text, `chat` also what may stand before it; `most` tokens."""
        self.tokenizer, self.stop, self.strips, self.most = tokenizer, stop, strips, most
        self.before: int | None = None if chat else 0
        """Tokens that stand before the answer; None until that is clear."""
        self.ids: list[int] = []
        """The answer's own tokens."""
        self.text = ""
        """The text of these."""
        self.stopped = False
        """Whether the text contained a stop text, and ends before it."""
        self._shown = 0
        self._texts = prefix_texts(partial(decode_exactly, tokenizer), self.ids)

    def take(self, written: Sequence[int], over: bool) -> str:
        """New characters, given all tokens that the model wrote; all remaining ones where the answer is over."""
        if self.before is None:
            self.before = self._find_start(written, over)
        if self.before is not None:
            for token in written[self.before + len(self.ids) : self.before + self.most]:
                if self.stopped:
                    break
                self.ids.append(token)
                self._cut(next(self._texts))
        text = self.text.strip() if self.strips else self.text
        if not over and not self.stopped:
            text = self._certain(text)
        new, self._shown = text[self._shown :], max(self._shown, len(text))
        return new

    def _find_start(self, written: Sequence[int], over: bool) -> int | None:
        start = tokens_before(self.tokenizer, tuple(written))
        text = decode_exactly(self.tokenizer, written).strip()
        return start if over or (start < len(written) and not OPEN.startswith(text)) else None

    def _cut(self, text: str) -> None:
        """The text so far, up to the first stop text in it."""
        longest = max(map(len, self.stop), default=0)
        searched = len(self.text.rstrip(UNFINISHED))  # half characters are several signs, and become one
        ends = [end for stop in self.stop if (end := text.find(stop, max(0, searched - longest))) >= 0]
        self.stopped = bool(ends)
        self.text = text[: min(ends)] if ends else text

    def _certain(self, text: str) -> str:
        """What no later token can change: no half characters, no beginning of a stop text."""
        text = text.rstrip(UNFINISHED)
        begun = max((_overlap(text, stop) for stop in self.stop), default=0)
        text = text[: len(text) - begun]
        return text.rstrip() if self.strips else text


def _overlap(text: str, stop: str) -> int:
    """How many characters at a text's end a stop text may begin with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


@dataclass(eq=False)
class _Row:
    """One request of a batch."""

    request: AnswerRequest
    text: AnswerText
    room: int
    """Tokens that may come after the prompt; more than the request's own where the model turns out to think first."""
    is_over: bool = False

    def decoded(self, decoding: DecodingBatch, row: int) -> Decoded:
        """What the model wrote."""
        ids, log_probs = decoding.tokens[row][: self.room], decoding.log_probs[row][: self.room]
        return Decoded(tuple(ids), tuple(log_probs), decoding.finished[row])


class AnswerBatch:
    """Requests of one kind, decoded together; the prompts are read with the first step."""

    def __init__(self, lm: LanguageModel, requests: Sequence[AnswerRequest], batch_tokens: int) -> None:
        """At most `batch_tokens` tokens of prompts are read together."""
        self.lm, self.requests, self.batch_tokens = lm, requests, batch_tokens
        self._rows = [_Row(request, self._text(request), request.room) for request in requests]
        self._decoding: DecodingBatch | None = None

    def _text(self, request: AnswerRequest) -> AnswerText:
        scored, chat = request.detector is not None, request.ending == CHAT
        return AnswerText(self.lm.tokenizer, request.draw.stop, scored, chat, request.max_new_tokens)

    @property
    def is_over(self) -> bool:
        """Whether every answer has ended or was dropped."""
        return all(row.is_over for row in self._rows)

    def drop(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        self._rows[number].is_over = True
        if self._decoding is not None:
            self._decoding.finished[number] = True

    def step(self) -> list[Piece]:
        """One more token for every answer; those that have ended are scored."""
        with product_kernels():
            if self._decoding is None:
                self._decoding = self._read_prompts()
            is_last = next(self._steps, self) is self
            pieces: list[Piece] = []
            ended: list[tuple[int, str, Decoded]] = []
            for number, row in enumerate(self._rows):
                if row.is_over:
                    continue
                over = self._reached_end(number, row, is_last)
                decoded = row.decoded(self._decoding, number)
                text = row.text.take(decoded.ids, over)
                if over or row.text.stopped:
                    self.drop(number)
                    ended.append((number, text, decoded))
                else:
                    pieces.append(Piece(number, text, len(decoded.ids)))
            return pieces + self._end(ended)

    def _read_prompts(self) -> DecodingBatch:
        first = self.requests[0]
        n_shared = prefix_length([request.prompt for request in self.requests if request.prompt is not None])
        prefix = compute_prefix(self.lm, first.ids[:n_shared])
        sampling = None
        if first.draw.temperature > 0:
            seeds = [secrets.randbits(63) if one.draw.seed is None else one.draw.seed for one in self.requests]
            numbers = [priorities(seed, "answer asked for", [""])[0] for seed in seeds]
            sampling = Sampling(np.array(numbers, dtype=np.uint64), first.draw.temperature, first.draw.top_p)
        most = max(request.room for request in self.requests)
        if first.ending == CHAT:
            most = max(most, *(with_thinking(request.max_new_tokens) for request in self.requests))
        prompts = [request.ids for request in self.requests]
        decoding = DecodingBatch(self.lm, prompts, prefix, most + 1, self.batch_tokens, sampling)
        self._steps = decoding.steps(most, Ending(self.lm, first.ending).is_end)
        return decoding

    def _reached_end(self, number: int, row: _Row, is_last: bool) -> bool:
        """Whether an answer has ended or is as long as it may be; one that thinks first may be longer."""
        assert self._decoding is not None
        if is_last or self._decoding.finished[number]:
            return True
        if len(self._decoding.tokens[number]) <= row.room:
            return False
        most, request = row.request.max_new_tokens, row.request
        if request.ending == CHAT and row.room == request.room:
            decoded = [row.decoded(self._decoding, number)]
            if thinkers(self.lm.tokenizer, [request.ids], decoded, most, self.lm.context):
                row.room = with_thinking(most)
                return False
        return True

    def _end(self, ended: Sequence[tuple[int, str, Decoded]]) -> list[Piece]:
        """The last pieces, with scores."""
        pieces = []
        for number, text, decoded in ended:
            row = self._rows[number]
            own = len(decoded.ids) - (row.text.before or 0)
            has_ended = row.text.stopped or (decoded.finished and own <= row.request.max_new_tokens)
            piece = Piece(number, text, len(decoded.ids), "stop" if has_ended else "length")
            if row.request.detector is not None:
                try:
                    piece = replace(piece, score=_score(row, decoded))
                except UserError as error:
                    piece = replace(piece, error=error)
            pieces.append(piece)
        return pieces


def _score(row: _Row, decoded: Decoded) -> Score:
    """The score of an answer that has ended."""
    request, detector = row.request, row.request.detector
    assert detector is not None
    assert request.question is not None
    assert request.prompt is not None
    items = detector.session.located([request.question], [_answer(row, detector, decoded)], [request.prompt])
    return detector.score_items(items, risk=request.risk)[0]


def _answer(row: _Row, detector: Detector, decoded: Decoded) -> Answer:
    """The answer as `Detector.score` would have it."""
    request, tokenizer = row.request, detector.session.lm.tokenizer
    template = detector.trained.setting.template
    if row.text.stopped:
        ids, text = row.text.ids, row.text.text
        n = next((n for n in range(len(ids), -1, -1) if decode_exactly(tokenizer, ids[:n]) == text), None)
        if n is None:  # the text ends inside a token
            assert request.prompt is not None
            return given_answers(tokenizer, template, [request.prompt], [text])[0]
        n += row.text.before or 0
        decoded = Decoded(decoded.ids[:n], decoded.log_probs[:n], finished=True)
    return spoken_answers(tokenizer, template, [decoded], request.max_new_tokens)[0]
