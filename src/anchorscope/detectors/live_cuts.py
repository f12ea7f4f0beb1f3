"""What one answer's score depends on: the detector's probability with words of the question cut.

One pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. The detector itself reads every run.
What cutting does to many answers can be measured; what it says of a single one is mostly noise
(docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from anchorscope.answers.template import Prompt, build_prompts
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Span
from anchorscope.detectors.detector import Detector, asked, unread_reason
from anchorscope.detectors.features import CLEAN, QUESTION_ONLY, RAUQ
from anchorscope.detectors.trained import Decisions, Score, decide
from anchorscope.engine.sequences import CLEAN as CLEAN_VARIANT
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.errors import UserError
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.items import Item
from anchorscope.spans.locate import question_tokens
from anchorscope.spans.words import is_clear, words_as_written
from anchorscope.stats.streams import stream

NOTE = "What a cut does to many answers can be measured; what it does to a single one is mostly noise."
MOST_ALONE = 16
"""Key words that are cut one by one; of more, the first ones."""
DRAWS = 3
"""Random cuts."""
CHOSEN, ALONE = "chosen", "word "
"""Names of runs: words that the user chose; a key word alone, with its number."""


@dataclass(frozen=True)
class QuestionWord:
    """Something that can be cut."""

    start: int
    """Characters [start, end) of the question's text."""
    end: int
    text: str
    key: bool
    """Whether it is one of the key words, which may be several words long."""


@dataclass(frozen=True)
class LiveCuts:
    """One question and answer, clean and cut."""

    score: Score
    """The detector's own."""
    words: tuple[QuestionWord, ...]
    """All that can be cut, in the order of the question."""
    probability: Mapping[str, float]
    """Of "truthful", by run: `clean`, `knockout` (all key words), `word N`, `chosen`, `random`, `random 2` …"""
    about: Mapping[str, Any]
    """The rest of the record."""

    def record(self) -> dict[str, Any]:
        """Ready for JSON."""
        score, shown = self.score.record(), {run: round(value, 6) for run, value in self.probability.items()}
        return {
            "question": score.pop("question"),
            "answer": score.pop("answer"),
            "score": score,
            "words": [asdict(word) for word in self.words],
            "probability": {
                "clean": shown[CLEAN],
                "all": shown.get(KNOCKOUT),
                "chosen": shown.get(CHOSEN),
                "alone": [
                    {"word": int(run.removeprefix(ALONE)), "value": value}
                    for run, value in shown.items()
                    if run.startswith(ALONE)
                ],
                "random": [value for run, value in shown.items() if run.startswith("random")],
            },
            "note": NOTE,
            **self.about,
        }


def live_cuts(
    detector: Detector,
    question: str | Question,
    answer: str | None,
    chosen: Sequence[int] | None = None,
    longest: int | None = None,
) -> LiveCuts:
    """Cuts of one question and answer; where there is none, the model gives one of at most `longest` tokens, and never
    more than the detector's own. `chosen` are the numbers of words of the question, counted from 0, that are cut
    together in a run of their own. A `Question` has its own answer."""
    given = asked(question, answer) if isinstance(question, str) else question
    trained, session = detector.trained, detector.session
    (item,) = session.items([given], longest)
    if item.tokens is None:
        raise UserError(f"Nothing can be read of this answer: {unread_reason(item, session.lm.context)}.")
    setting, needs = trained.setting, trained.needs
    (prompt,) = build_prompts(session.lm.tokenizer, [given], setting.template)
    words = question_units(given, item.words.spans)
    alone = [number for number, word in enumerate(words) if word.key][:MOST_ALONE]
    cuts = {
        KNOCKOUT: item.located.question_tokens,
        **{f"{ALONE}{number}": _tokens(given, [words[number]], prompt) for number in alone},
        CHOSEN: _tokens(given, _named(words, chosen or ()), prompt),
        **_random_keys(item, setting.edges),
    }
    warnings = []
    if not cuts[KNOCKOUT]:
        warnings.append("no key words found: nothing could be cut")
    wanted, random = (len(cuts.get(name, ())) for name in (KNOCKOUT, "random"))
    if random < wanted:
        warnings.append(f"the random cut takes {random} tokens, the key words are {wanted}: there are no more others")
    decisions: dict[str, Decisions] = {}
    if QUESTION_ONLY in needs.runs or RAUQ in needs.columns or not needs.reads_model:
        warnings.append(f"cuts are not measured for {trained.name!r}: they change more than it reads of one run")
    else:
        runs = {CLEAN: CLEAN_VARIANT} | {
            name: Variant({0: Cut(keys, setting.edges)}) for name, keys in cuts.items() if keys
        }
        passed = session.run_texts("live cuts", [item], runs, needs)
        decisions = {run: decide(trained, passed.features([item], needs, run)) for run in runs}
    if KNOCKOUT in decisions and decisions[KNOCKOUT].outside[0]:
        warnings.append("without the key words the state is unlike those of training")
    (score,) = detector.score_items([item])
    assert score.truth_probability is not None, "an answer that was read has a probability"
    probability = {CLEAN: score.truth_probability}
    probability |= {run: float(decided.probability[0]) for run, decided in decisions.items()}
    if not all(map(np.isfinite, probability.values())):
        raise UserError("The model's states hold NaN or infinity; run the model in float32 (--dtype float32).")
    about = {
        "generated": given.model_answer is None,
        "key_words_by": item.located.rule,
        "chosen": None if chosen is None else sorted(set(chosen)),
        "position": setting.position,
        "edges": setting.edges,
        "warnings": warnings,
    }
    return LiveCuts(score, words, probability, about)


def question_units(question: Question, key_spans: Sequence[Span]) -> tuple[QuestionWord, ...]:
    """What can be cut of a question: its key words, some of them several words long, and every other word."""
    text = question.question
    others = [(word.start, word.end) for word in words_as_written(text) if is_clear(word.start, word.end, key_spans)]
    keys = set(key_spans)
    return tuple(
        QuestionWord(start, end, text[start:end], (start, end) in keys) for start, end in sorted([*key_spans, *others])
    )


def _named(words: Sequence[QuestionWord], chosen: Sequence[int]) -> list[QuestionWord]:
    for number in chosen:
        if not 0 <= number < len(words):
            raise UserError(
                f"Word {number} is to be cut, and the question has {len(words)} words; give numbers from 0 to "
                f"{len(words) - 1}."
            )
    return [words[number] for number in sorted(set(chosen))]


def _tokens(question: Question, words: Iterable[QuestionWord], prompt: Prompt) -> tuple[int, ...]:
    """Tokens of some words; never the first of all, which models use as a sink for idle attention."""
    tokens = question_tokens([(word.start, word.end) for word in words], prompt)
    return tuple(token for token in tokens if token > 0)


def _random_keys(item: Item, edges: str) -> dict[str, tuple[int, ...]]:
    """The tokens of each random draw, as a run draws them; draws that are the same count once."""
    if not item.located.question_tokens:
        return {}
    draws: dict[str, tuple[int, ...]] = {}
    for draw in range(DRAWS):
        random = replace(INTERVENTIONS["random"], draw=draw)
        keys = random.cut(item, edges, stream(0, random.draw_name, item.question.question)).keys
        if keys not in draws.values():
            draws[random.draw_name] = keys
    return draws
