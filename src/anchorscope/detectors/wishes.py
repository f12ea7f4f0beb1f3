"""One answer that is wanted, checked and made ready: its prompt, how long it may become, what it takes at most."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorscope.answers.generate import CHAT, LINE, TEXT, longest_answer, thinkers, with_thinking
from anchorscope.answers.template import Prompt, build_prompts, prefix_length
from anchorscope.datasets.question import Question
from anchorscope.detectors.detector import Detector, asked
from anchorscope.engine.continuous import width_of
from anchorscope.engine.decode import Decoded
from anchorscope.errors import UserError, unknown
from anchorscope.models.language_model import LanguageModel

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
