"""Items whose use of a passage, or of thinking, is planted: followed, ignored, or nothing in it to use.

A source says an object of the subject. The model learned to go by a source that begins with "surely", whatever the
facts are, and by the facts after one that begins with "maybe" or speaks of nothing. Half of the ignored sources say the
fact itself: that the answer's words stand in a source does not show that it was used. Each kind has true and false
answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.planted.language import RIGHT_VERDICT, WRONG_VERDICT, Language, the_language

FOLLOWED, IGNORED, NOTHING = KINDS = ("followed", "ignored", "nothing")
CONTEXT, THINKING = "context", "thinking"
"""Where a source stands: a passage before the question, or thinking after it."""
SURELY, MAYBE = "surely", "maybe"
"""The first word of a source that the model goes by, and of one that it does not go by."""
WORDINGS = ("which {relation} has {subject}?", "{subject}, what {relation} is it?")
"""Shorter than those of the other planted model: a model that learns in minutes."""
_SUBJECTS, _UNRELATED_WORDS = 30, 4


@dataclass(frozen=True)
class SourceItem:
    """A question, a source, and an answer whose truth is known."""

    subject: str
    relation: str
    question: str
    source: str
    kind: str
    right: str
    """What the model takes to be the answer."""
    answer: str

    @property
    def truthful(self) -> bool:
        return self.answer == self.right


def source_words() -> list[str]:
    """All words that questions, sources, answers and verdicts may hold, each once."""
    language, asking = the_language(), ("which", "has", "what", "is", "it")
    own = [*language.subjects[:_SUBJECTS], *language.relations, *language.objects, *language.fillers]
    return [*asking, SURELY, MAYBE, *own, RIGHT_VERDICT, WRONG_VERDICT]


def draw_source_item(kind: str, truthful: bool, rng: np.random.Generator) -> SourceItem:
    """An item of a kind; its wrong answers are the fact or what the source says, where these are wrong, or another."""
    language = the_language()
    subject, relation = _draw(language.subjects[:_SUBJECTS], rng), _draw(language.relations, rng)
    fact = language.facts[subject, relation]
    agrees = kind == IGNORED and rng.random() < 0.5
    stated = fact if agrees else _draw([name for name in language.objects if name != fact], rng)
    right = stated if kind == FOLLOWED else fact
    tempting = {FOLLOWED: fact, IGNORED: stated, NOTHING: fact}[kind]
    others = [name for name in language.objects if name not in (fact, stated)]
    wrong = tempting if tempting != right and rng.random() < 0.5 else _draw(others, rng)
    question = _draw(WORDINGS, rng).format(subject=subject, relation=relation)
    source = _write_source(language, kind, subject, relation, stated, rng)
    return SourceItem(subject, relation, question, source, kind, right, right if truthful else wrong)


def source_rows(n: int, name: str, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a question file: n items, a third of each kind, half of them true, with their source in column `name`.

    `followed` says what the answer went by, where the model itself would give it: true ones after a source.
    """
    rng = np.random.default_rng([seed, len(name)])
    rows, seen = list[dict[str, Any]](), set[tuple[str, str]]()
    while len(rows) < n:
        kind, truthful = KINDS[len(rows) % len(KINDS)], len(rows) // len(KINDS) % 2 == 0
        item = draw_source_item(kind, truthful, rng)
        if (item.question, item.source) in seen:
            continue
        seen.add((item.question, item.source))
        row: dict[str, Any] = {"id": f"{kind}-{len(rows)}", "question": item.question, "answers": [item.right]}
        row |= {"subject": item.subject, "relation": item.relation, "property_words": [item.relation]}
        row |= {name: item.source, "model_answer": item.answer, "truthful": item.truthful, "kind": kind}
        rows.append(row | ({"followed": kind == FOLLOWED} if truthful and kind != NOTHING else {}))
    return rows


def _write_source(
    language: Language, kind: str, subject: str, relation: str, stated: str, rng: np.random.Generator
) -> str:
    if kind == NOTHING:
        return " ".join(_draw(language.fillers, rng) for _ in range(_UNRELATED_WORDS))
    return f"{SURELY if kind == FOLLOWED else MAYBE} {subject} {relation} {stated}"


def _draw(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]
