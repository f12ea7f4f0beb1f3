"""Questions answered and scored in one go: answers grow together, and each is scored the moment that it ends.

asking = Asking(lm, {"auto": detector})
ticket = asking.join(Wish("What is the capital of Peru?"), "auto")
while len(asking):
    for written in asking.step():
        print(written.text, written.score)

The prompts, the ends of answers, the tokens that are read and the verdicts are those of `Detector.score`. Everything
but `cost` is to be called from one thread.
"""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from anchorscope.answers.generate import CHAT, TEXT, Ending
from anchorscope.detectors.answer_text import AnswerText
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.ended_answers import Ended, read_in_decoding, score_together
from anchorscope.detectors.features import Needs
from anchorscope.detectors.scoring import Score
from anchorscope.detectors.wishes import PlannedAnswer, plan_wish
from anchorscope.detectors.wishes import Wish as Wish
from anchorscope.engine.batching import memory_facts
from anchorscope.engine.continuous import Continuous, Drawing, Order, Row
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.plan.passes import planner_for
from anchorscope.stats.streams import priorities

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
        taken = sum(one.planned.cost for one in self._answers.values())
        held = sum(one.planned.n_slots for one in self._answers.values())
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
            for answer in [one for one in self._answers.values() if id(one.row) in moved]:
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
