"""Answers that the model writes for several requests at once, token by token, with the text that can be shown so far.

    batch = AnswerBatch(lm, [request_for_question(detector, "What is the capital of Peru?")], batch_tokens)
    while not batch.is_over:
        for piece in batch.step():
            print(piece.text, piece.score)

A batch holds requests of one `kind`: the same detector and the same sampling. Prompts, ends of answers, the text that
is scored and the score are those of `Detector.score`.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anchorscope.answers.generate import (
    CHAT,
    LINE,
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
from anchorscope.spans.locate import UNFINISHED
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
    def ending(self) -> str:
        """Where the answer ends, see `answers/generate.py`."""
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
    """With the last piece."""
    error: UserError | None = None
    """Why this answer, and no other, could not be scored."""


class AnswerText:
    """The text of an answer while its tokens arrive: whole characters only, and nothing that a later token can change.

    Shown without white space around it and without blank lines and thinking before it: put together, the pieces are the
    text that is scored.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], chat: bool, most: int) -> None:
        """`chat` leaves out what may come before the answer, which has at most `most` tokens."""
        self.tokenizer, self.stop, self.most = tokenizer, stop, most
        self.before: int | None = None if chat else 0
        """Tokens that stand before the answer; None until that is clear."""
        self.text = ""
        """The answer so far, up to the first stop text."""
        self.stopped = False
        """Whether there was a stop text."""
        self._shown = 0

    def take(self, written: Sequence[int], over: bool) -> str:
        """New characters, given all tokens that the model wrote; all remaining ones where the answer is over."""
        if self.before is None:
            start = tokens_before(self.tokenizer, tuple(written))
            text = decode_exactly(self.tokenizer, written).strip()
            self.before = start if over or (start < len(written) and not OPEN.startswith(text)) else None
        if self.before is not None:
            self.text = decode_exactly(self.tokenizer, written[self.before : self.before + self.most])
            ends = [end for stop in self.stop if (end := self.text.find(stop)) >= 0]
            self.stopped = bool(ends)
            self.text = self.text[: min(ends)] if ends else self.text
        text = self.text.strip()
        if not over and not self.stopped:  # no half characters, and no beginning of a stop text
            text = text.rstrip(UNFINISHED)
            text = text[: len(text) - max((_overlap(text, stop) for stop in self.stop), default=0)].rstrip()
        new, self._shown = text[self._shown :], max(self._shown, len(text))
        return new


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
        self._rows = [
            _Row(
                request,
                AnswerText(lm.tokenizer, request.draw.stop, request.ending == CHAT, request.max_new_tokens),
                request.room,
            )
            for request in requests
        ]
        self._decoding: DecodingBatch | None = None

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
        n_shared = prefix_length([request.prompt for request in self.requests])
        prefix = compute_prefix(self.lm, first.prompt.ids[:n_shared])
        sampling = None
        if first.draw.temperature > 0:
            draws = [request.draw for request in self.requests]
            seeds = [secrets.randbits(63) if draw.seed is None else draw.seed for draw in draws]
            numbers = [priorities(seed, "answer asked for", [""])[0] for seed in seeds]
            sampling = Sampling(np.array(numbers, dtype=np.uint64), first.draw.temperature, first.draw.top_p)
        most = max(request.room for request in self.requests)
        if first.ending == CHAT:
            most = max(most, *(with_thinking(request.max_new_tokens) for request in self.requests))
        prompts = [request.prompt.ids for request in self.requests]
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
            if thinkers(self.lm.tokenizer, [request.prompt.ids], decoded, most, self.lm.context):
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
            try:
                pieces.append(replace(piece, score=_score(row, decoded)))
            except UserError as error:
                pieces.append(replace(piece, error=error))
        return pieces


def _score(row: _Row, decoded: Decoded) -> Score:
    """The score of an answer that has ended."""
    request, detector = row.request, row.request.detector
    items = detector.session.located([request.question], [_answer(row, decoded)], [request.prompt])
    return detector.score_items(items, risk=request.risk)[0]


def _answer(row: _Row, decoded: Decoded) -> Answer:
    """The answer as `Detector.score` would have it."""
    request, tokenizer = row.request, row.request.detector.session.lm.tokenizer
    template = request.detector.trained.setting.template
    if row.text.stopped:
        return given_answers(tokenizer, template, [request.prompt], [row.text.text])[0]
    return spoken_answers(tokenizer, template, [decoded], request.max_new_tokens)[0]
