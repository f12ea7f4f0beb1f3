"""Answers that have ended, scored by what was read while they were decoded.

Clean states, those before the answer, and the model's confidence are there already. Whatever else a detector reads (cut
or strengthened attention, the answer alone) is run in one more pass, for exactly those runs and for all answers that
ended together. An answer that was cut off inside a token has other tokens than those that were read: it is run as an
answer that was given elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from anchorscope.answers.generate import Answer, given_answer, spoken_answers
from anchorscope.answers.template import decode_exactly
from anchorscope.catalogue import POSITIONS
from anchorscope.detectors.answer_text import AnswerText
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.features import CLEAN, Features, Needs, StateKey
from anchorscope.detectors.runs import ANSWER_TOKENS, COLUMNS, QUESTION_ONLY
from anchorscope.detectors.scoring import Score
from anchorscope.detectors.wishes import PlannedAnswer
from anchorscope.engine.continuous import Row
from anchorscope.engine.decode import Decoded, SitePlace
from anchorscope.errors import UserError
from anchorscope.items import Item
from anchorscope.models.devices import is_device_lost


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
    return [score_together([one])[0] for one in ended]  # outside: an exception holds on to every tensor


def _scored(ended: Sequence[Ended]) -> list[Score]:
    detector, risk = ended[0].detector, ended[0].risk
    questions = [one.planned.question for one in ended if one.planned.question is not None]
    items = detector.session.located(questions, [one.answer() for one in ended])
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
        tuple(key for key in needs.states if key not in known), tuple(one for one in needs.columns if one not in told)
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
