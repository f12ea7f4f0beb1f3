"""Questions answered and scored in one go: answers grow together, and each is scored as soon as it ends.

asking = Asking(lm, {"auto": detector})
ticket = asking.join(Wish("What is the capital of Peru?"), "auto")
while len(asking):
    for written in asking.step():
        print(written.text, written.score)

The prompts, the ends of answers, the tokens that are read and the verdicts are those of `Detector.score`. Clean states
and confidence are read while decoding; what else a detector reads (cut or strengthened attention, the answer alone) is
run in one more pass for all answers that ended together. Everything but `cost` is to be called from one thread.
"""

import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from anchorscope.answers.generate import (
    CHAT,
    LINE,
    TEXT,
    Answer,
    Ending,
    given_answer,
    longest_answer,
    spoken_answers,
    thinkers,
    tokens_before,
    with_thinking,
)
from anchorscope.answers.template import OPEN, Prompt, build_prompts, decode_exactly, prefix_length
from anchorscope.catalogue import POSITIONS
from anchorscope.datasets.question import Question
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.features import ANSWER_TOKENS, CLEAN, COLUMNS, QUESTION_ONLY, Features, Needs, StateKey
from anchorscope.detectors.trained import Score
from anchorscope.engine.batching import memory_facts
from anchorscope.engine.continuous import Continuous, Drawing, Order, Row, width_of
from anchorscope.engine.decode import Decoded, SitePlace
from anchorscope.errors import UserError, unknown
from anchorscope.items import Item
from anchorscope.models.devices import is_device_lost
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.plan.passes import planner_for
from anchorscope.spans.locate import UNFINISHED, prefix_texts
from anchorscope.stats.streams import priorities


class AnswerText:
    """What is told of one answer, piece by piece."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], strips: bool, chat: bool, most: int) -> None:
        """`strips` leaves out white space around the text, `chat` also what may stand before it; `most` tokens."""
        self.tokenizer, self.stop, self.strips, self.most = tokenizer, stop, strips, most
        self.before: int | None = None if chat else 0
        """Tokens that stand before the answer; None while that is not known."""
        self.ids: list[int] = []
        """The answer's own tokens."""
        self.text = ""
        """The text of these."""
        self.stopped = False
        """Whether a stop text was found: the text ends before it."""
        self._told = 0
        self._texts = prefix_texts(partial(decode_exactly, tokenizer), self.ids)

    def take(self, written: Sequence[int], over: bool) -> str:
        """New characters, given all tokens that the model wrote; all that are left where the answer is over."""
        if self.before is None:
            self.before = self._begins_at(written, over)
        if self.before is not None:
            for token in written[self.before + len(self.ids) : self.before + self.most]:
                if self.stopped:
                    break
                self.ids.append(token)
                self._cut(next(self._texts))
        shown = self.text.strip() if self.strips else self.text
        if not over and not self.stopped:
            shown = self._certain(shown)
        new, self._told = shown[self._told :], max(self._told, len(shown))
        return new

    def _begins_at(self, written: Sequence[int], over: bool) -> int | None:
        """How many tokens stand before the answer; None where that is not known yet."""
        start = tokens_before(self.tokenizer, tuple(written))
        said = decode_exactly(self.tokenizer, written).strip()
        return start if over or (start < len(written) and not OPEN.startswith(said)) else None

    def _cut(self, text: str) -> None:
        """The text so far, up to the first stop text in it."""
        longest = max(map(len, self.stop), default=0)
        known = len(self.text.rstrip(UNFINISHED))  # half letters are several signs, and become one
        found = [place for one in self.stop if (place := text.find(one, max(0, known - longest))) >= 0]
        self.stopped = bool(found)
        self.text = text[: min(found)] if found else text

    def _certain(self, text: str) -> str:
        """What no later token can change: no half letters, no beginning of a stop text."""
        text = text.rstrip(UNFINISHED)
        begun = max((_overlap(text, one) for one in self.stop), default=0)
        text = text[: len(text) - begun]
        return text.rstrip() if self.strips else text


def _overlap(text: str, stop: str) -> int:
    """How many characters at a text's end a stop text may begin with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


LONGEST_TEXT = 256
"""Tokens of an answer in a conversation of the caller's own, where none are named."""


@dataclass(frozen=True)
class Wish:
    """One answer that is wanted."""

    question: str | None
    """Asked in the detector's own prompt, and scored; or None for the tokens below."""
    ids: tuple[int, ...] = ()
    """A prompt's tokens as they are; the answer is not scored."""
    max_new_tokens: int | None = None
    """None for the detector's own."""
    temperature: float = 0.0
    """0 for the likeliest tokens."""
    top_p: float = 1.0
    seed: int | None = None
    """What sampled tokens depend on; None for a seed that nobody knows."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts."""
    risk: float | None = None
    """The verdict is for this risk; None for the detector's first that can be reached."""


@dataclass(frozen=True)
class PlannedAnswer:
    """A wish that can be fulfilled."""

    ids: tuple[int, ...]
    """The prompt."""
    n_shared: int
    """Leading tokens that all questions of the detector share."""
    max_new_tokens: int
    """Tokens of the answer itself."""
    room: int
    """Tokens that may come after the prompt, blank ones before the answer included."""
    ending: str
    """Where the answer ends, see `answers/generate.py`."""
    detector: Detector | None
    """Who scores it; None where nobody does."""
    question: Question | None = None
    prompt: Prompt | None = None

    @property
    def cost(self) -> int:
        """Tokens that it takes at most, beside those that it shares."""
        return len(self.ids) - self.n_shared + self.room

    @property
    def n_slots(self) -> int:
        """Tokens whose keys and values are held for it, those that it shares included."""
        return width_of(len(self.ids) + self.room + 1)

    def longer(self, ids: Sequence[int]) -> int:
        """How long the answer may be after all: a thinking block is not part of it; 0 for no longer."""
        assert self.detector is not None
        lm, most = self.detector.session.lm, self.max_new_tokens
        decoded = [Decoded(tuple(ids), (), False)]
        return with_thinking(most) if thinkers(lm.tokenizer, [self.ids], decoded, most, lm.context) else 0


def plan_wish(lm: LanguageModel, detectors: Mapping[str, Detector], wish: Wish, name: str | None) -> PlannedAnswer:
    """A wish made ready; raises `UserError` where it cannot be fulfilled. Runs nothing of the model."""
    _refuse_bad_numbers(wish)
    if wish.question is None:
        return _as_it_is(lm, wish)
    if wish.ids:
        raise UserError("Both a question and a prompt's tokens are given; give one of them.")
    detector = _chosen(detectors, name)
    setting = detector.trained.setting
    detector.trained.threshold(wish.risk)
    question = asked(wish.question)
    most = setting.max_new_tokens if wish.max_new_tokens is None else wish.max_new_tokens
    room = longest_answer(setting.template, most)
    (prompt,) = build_prompts(lm.tokenizer, [question], setting.template, lm.context)
    _refuse_too_long(prompt.left_out + len(prompt.ids) + room, lm.context)
    ending = CHAT if setting.template.kind == "chat" else LINE
    return PlannedAnswer(prompt.ids, prefix_length([prompt]), most, room, ending, detector, question, prompt)


def _as_it_is(lm: LanguageModel, wish: Wish) -> PlannedAnswer:
    if not wish.ids:
        raise UserError("Neither a question nor a prompt is given; give one of them.")
    known = int(lm.embedding.weight.shape[0])  # type: ignore[union-attr,arg-type,index]
    strange = next((token for token in wish.ids if not 0 <= token < known), None)
    if strange is not None:
        raise UserError(f"The prompt holds token {strange}, and model {lm.name!r} has embeddings for {known:,} tokens.")
    left = math.inf if lm.context is None else lm.context - len(wish.ids)
    most = wish.max_new_tokens or int(max(1, min(LONGEST_TEXT, left)))
    _refuse_too_long(len(wish.ids) + most, lm.context)
    return PlannedAnswer(wish.ids, 0, most, most, TEXT, None)


def _chosen(detectors: Mapping[str, Detector], name: str | None) -> Detector:
    if name is None and len(detectors) == 1:
        return next(iter(detectors.values()))
    if name is None or name not in detectors:
        raise unknown("detector", name or "", detectors)
    return detectors[name]


def _refuse_bad_numbers(wish: Wish) -> None:
    if wish.max_new_tokens is not None and wish.max_new_tokens < 1:
        raise UserError(f"An answer of at most {wish.max_new_tokens} tokens is asked for; allowed: 1 or more.")
    if not 0 <= wish.temperature < math.inf:
        raise UserError(f"temperature is {wish.temperature}; allowed: 0 for the likeliest tokens, or above.")
    if not 0 < wish.top_p <= 1:
        raise UserError(f"top_p is {wish.top_p}; allowed: above 0 and up to 1.")
    if not all(wish.stop):
        raise UserError("A stop text is empty; give at least one character, or leave it out.")


def _refuse_too_long(needs: int, context: int | None) -> None:
    if context is not None and needs > context:
        raise UserError(
            f"Prompt and answer may take {needs:,} tokens, and the model reads at most {context:,}; ask a shorter "
            f"question, or for a shorter answer."
        )


@dataclass(frozen=True)
class Ended:
    """One answer to a question."""

    planned: PlannedAnswer
    row: Row
    text: AnswerText
    risk: float | None

    @property
    def detector(self) -> Detector:
        """Who scores it."""
        assert self.planned.detector is not None
        return self.planned.detector

    def answer(self) -> Answer:
        """As the offline path has it."""
        planned, template = self.planned, self.detector.trained.setting.template
        tokenizer, decoded = self.detector.session.lm.tokenizer, self.row.decoded()
        if self.text.stopped:
            n = _tokens_of(tokenizer, self.text)
            if n is None:
                assert planned.prompt is not None
                return given_answer(tokenizer, template, planned.prompt, self.text.text)
            n += self.text.before or 0
            decoded = Decoded(decoded.ids[:n], decoded.log_probs[:n], finished=True)
        return spoken_answers(tokenizer, template, [decoded], planned.max_new_tokens)[0]


def _tokens_of(tokenizer: object, text: AnswerText) -> int | None:
    """How many of an answer's tokens make its text; None where it ends inside one."""
    return next((n for n in range(len(text.ids), -1, -1) if decode_exactly(tokenizer, text.ids[:n]) == text.text), None)


def read_in_decoding(needs: Needs) -> tuple[tuple[SitePlace, ...], bool]:
    """What decoding has to read for a detector: places of states, and whether statistics of the tokens."""
    places = dict.fromkeys((site, layer) for run, site, layer in needs.states if run in (CLEAN, QUESTION_ONLY))
    return tuple(places), any(COLUMNS[name].run == CLEAN for name in needs.columns if name in COLUMNS)


def score_together(ended: Sequence[Ended]) -> list[Score | UserError]:
    """A score of each, all of one detector and for one risk; where one cannot be scored, only that one fails."""
    try:
        return list(_scored(ended))
    except Exception as error:
        if is_device_lost(error):
            raise
        if len(ended) == 1:
            return [error if isinstance(error, UserError) else UserError("This answer could not be scored.")]
    return [score_together([answer])[0] for answer in ended]  # outside: an exception holds on to every tensor


def _scored(ended: Sequence[Ended]) -> list[Score]:
    detector, risk = ended[0].detector, ended[0].risk
    questions = [answer.planned.question for answer in ended if answer.planned.question is not None]
    items = detector.session.located(questions, [answer.answer() for answer in ended])
    rows = {id(item): one.row for item, one in zip(items, ended, strict=True)}
    read = [item for item in items if item.tokens is not None]
    features = _features(detector, read, [rows[id(item)] for item in read]) if read else Features(0, {}, {})
    return detector.scores_of(items, features, risk)


def _features(detector: Detector, items: Sequence[Item], rows: Sequence[Row]) -> Features:
    """What the detector reads: from decoding where that has it, from another pass where it has not."""
    needs = detector.trained.needs
    if not all(_same_tokens(item, row) for item, row in zip(items, rows, strict=True)):
        if len(items) == 1:
            return detector.session.features(items, needs)
        return _joined([_features(detector, [item], [row]) for item, row in zip(items, rows, strict=True)])
    known = [key for key in needs.states if key[0] in (CLEAN, QUESTION_ONLY)]
    told = [name for name in needs.columns if name == ANSWER_TOKENS or COLUMNS[name].run == CLEAN]
    rest = Needs(
        tuple(key for key in needs.states if key not in known),
        tuple(column for column in needs.columns if column not in told),
    )
    other = detector.session.features(items, rest) if rest != Needs() else Features(len(items), {}, {})
    states = {key: _states(detector, key, items, rows) for key in known}
    columns = {name: _column(name, items, rows) for name in told}
    return Features(len(items), {**states, **other.states}, {**columns, **other.columns})


def _same_tokens(item: Item, row: Row) -> bool:
    """Whether the item's tokens are those that were decoded, all of them fed."""
    located, prompt = item.located, row.order.prompt
    read = (*prompt, *row.ids[: len(row.seen) - 1])
    return located.input_ids == read[: len(located.input_ids)]


def _states(detector: Detector, key: StateKey, items: Sequence[Item], rows: Sequence[Row]) -> torch.Tensor:
    run, site, layer = key
    place = POSITIONS.index(detector.trained.setting.position)
    found = []
    for item, row in zip(items, rows, strict=True):
        located = item.located
        at = located.answer_start - 1 if run == QUESTION_ONLY else located.positions[place]
        found.append(row.state((site, layer), at).cpu())
    return torch.stack(found)


def _column(name: str, items: Sequence[Item], rows: Sequence[Row]) -> np.ndarray:
    if name == ANSWER_TOKENS:
        return np.array([len(item.answer.ids) for item in items], dtype=np.float64)
    found = []
    for item, row in zip(items, rows, strict=True):
        first = len(item.answer.before)
        told = np.array(row.told[first : first + len(item.answer.ids)], dtype=np.float32).T
        found.append(COLUMNS[name].made(told))
    return np.array(found, dtype=np.float64)


def _joined(parts: Sequence[Features]) -> Features:
    states = {key: torch.cat([part.states[key] for part in parts]) for key in parts[0].states}
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return Features(sum(part.n_items for part in parts), states, columns)


_PLANNED = 256  # wishes that are remembered between asking for their cost and joining


@dataclass(frozen=True)
class Written:
    """What one step gave to one answer."""

    ticket: int
    text: str
    """New characters, whole ones only; may be empty."""
    reason: str | None
    """None while it goes on; `stop` where it ended, `length` where it is as long as it may be."""
    score: Score | None
    """With the last piece, where a question was asked."""
    error: UserError | None
    """Why this answer, and no other, failed; nothing more comes."""
    prompt_tokens: int
    new_tokens: int
    """So far."""


@dataclass(eq=False)
class _Answer:
    """One answer under way."""

    ticket: int
    wish: Wish
    planned: PlannedAnswer
    row: Row
    text: AnswerText

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, and not because it was as long as it may be."""
        own = len(self.row.ids) - (self.text.before or 0)
        return self.text.stopped or (self.row.finished and own <= self.planned.max_new_tokens)

    def written(self, text: str, reason: str | None, score: Score | None, error: UserError | None) -> Written:
        tokens = (self.text.before or 0) + len(self.text.ids)
        return Written(self.ticket, text, reason, score, error, len(self.planned.ids), tokens)


class Asking:
    """Answers under way on one model, for several detectors."""

    def __init__(self, lm: LanguageModel, detectors: Mapping[str, Detector], most_tokens: int | None = None) -> None:
        """At most `most_tokens` are under way together, as `cost` counts them; None for what the memory suggests."""
        foreign = [name for name, one in detectors.items() if one.session.lm is not lm]
        if foreign:
            raise ValueError(f"detectors {foreign} run on another model")
        self.lm, self.detectors = lm, dict(detectors)
        self.most_tokens = planner_for(lm).batch_tokens if most_tokens is None else most_tokens
        self.most_slots = memory_facts(lm).slots
        self.batch = Continuous(lm)
        self._answers: dict[int, _Answer] = {}
        self._next = 0
        self._ending = lru_cache(None)(partial(Ending, lm))
        self._planned = lru_cache(_PLANNED)(partial(plan_wish, lm, self.detectors))
        self._lock = threading.Lock()  # one tokenizer for all threads

    def __len__(self) -> int:
        return len(self._answers)

    def cost(self, wish: Wish, detector: str | None) -> int:
        """Tokens that an answer takes at most, beside those that all of its detector's share; safe in other threads."""
        return self._plan(wish, detector).cost

    def _plan(self, wish: Wish, detector: str | None) -> PlannedAnswer:
        with self._lock:
            return self._planned(wish, detector)

    def join(self, wish: Wish, detector: str | None) -> int | None:
        """The ticket of an answer that begins with the next step; None where there is no room now.

        One that takes more than there is room for at all is admitted alone.
        """
        planned = self._plan(wish, detector)
        taken = sum(answer.planned.cost for answer in self._answers.values())
        held = sum(answer.planned.n_slots for answer in self._answers.values())
        if self._answers and (taken + planned.cost > self.most_tokens or held + planned.n_slots > self.most_slots):
            return None
        ticket, self._next = self._next, self._next + 1
        scored = planned.ending != TEXT
        text = AnswerText(self.lm.tokenizer, wish.stop, scored, planned.ending == CHAT, planned.max_new_tokens)
        self._answers[ticket] = _Answer(ticket, wish, planned, self.batch.join(self._order(wish, planned)), text)
        return ticket

    def _order(self, wish: Wish, planned: PlannedAnswer) -> Order:
        drawing = None
        if wish.temperature > 0:
            seed = secrets.randbits(63) if wish.seed is None else wish.seed
            number = int(priorities(seed, "answer asked for", [""])[0])
            drawing = Drawing(number, wish.temperature, wish.top_p)
        needs = Needs() if planned.detector is None else planned.detector.trained.needs
        places, statistics = read_in_decoding(needs)
        longer = planned.longer if planned.ending == CHAT else None
        is_end = self._ending(planned.ending).is_end
        return Order(planned.ids, planned.room, is_end, planned.n_shared, drawing, places, statistics, longer)

    def drop(self, ticket: int) -> None:
        """Nobody waits for this answer any more."""
        answer = self._answers.pop(ticket, None)
        if answer is not None:
            self.batch.drop(answer.row)

    def step(self) -> list[Written]:
        """One token more for everybody, joined ones read first; answers that have ended are scored."""
        with product_kernels():
            moved = {id(row) for row in self.batch.step()}
            found: list[Written] = []
            ended: list[tuple[_Answer, str, str]] = []
            for answer in [answer for answer in self._answers.values() if id(answer.row) in moved]:
                text = answer.text.take(answer.row.ids, answer.row.over)
                if not answer.row.over and not answer.text.stopped:
                    found.append(answer.written(text, None, None, None))
                    continue
                self.drop(answer.ticket)
                if answer.row.error is not None:
                    found.append(answer.written(text, None, None, answer.row.error))
                else:
                    ended.append((answer, text, "stop" if answer.has_ended else "length"))
            return found + self._scored(ended)

    def _scored(self, ended: Sequence[tuple[_Answer, str, str]]) -> list[Written]:
        """The last pieces, with scores: all answers of one detector together."""
        found = [one.written(text, why, None, None) for one, text, why in ended if one.planned.detector is None]
        groups: dict[tuple[int, float | None], list[tuple[_Answer, str, str]]] = {}
        for each in ended:
            if each[0].planned.detector is not None:
                groups.setdefault((id(each[0].planned.detector), each[0].wish.risk), []).append(each)
        for group in groups.values():
            scores = score_together([Ended(one.planned, one.row, one.text, one.wish.risk) for one, _, _ in group])
            for (one, text, why), score in zip(group, scores, strict=True):
                failed = score if isinstance(score, UserError) else None
                told = None if isinstance(score, UserError) else score
                found.append(one.written(text, None if failed else why, told, failed))
        return found
