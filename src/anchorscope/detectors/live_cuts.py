"""What one answer's score depends on: the detector's probability with words of the question cut.

One pass runs the answer clean, without all key words, without each of them alone, without words that a user chose, and
without as many tokens drawn at random, which is the control. The detector itself reads every run.
What cutting does to many answers can be measured; what it says of a single one is mostly noise
(docs/evidence-parts.md), and the record says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anchorscope.answers.template import build_prompts
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


def live_cuts(
    detector: Detector,
    question: str | Question,
    answer: str | None,
    chosen: Sequence[int] | None = None,
    longest: int | None = None,
) -> tuple[Score, dict[str, Any]]:
    """The detector's score of one answer, and a record of what it becomes under cuts.

    Where there is no answer, the model gives one of at most `longest` tokens, and never more than the detector's own.
    `chosen` are the numbers of words of the question, counted from 0, that are cut together in a run of their own. A
    `Question` has its own answer.
    """
    given = asked(question, answer) if isinstance(question, str) else question
    trained, session = detector.trained, detector.session
    setting, needs = trained.setting, trained.needs
    most = setting.max_new_tokens
    (item,) = session.items([given], most if longest is None else min(longest, most))
    if item.tokens is None:
        raise UserError(f"Nothing can be read of this answer: {unread_reason(item, session.lm.context)}.")
    words = question_words(given, item.words.spans)
    cut_together = sorted(set(chosen or ()))
    if cut_together and not 0 <= cut_together[0] <= cut_together[-1] < len(words):
        wrong = cut_together[0] if cut_together[0] < 0 else cut_together[-1]
        raise UserError(
            f"Word {wrong} is to be cut, and the question has {len(words)} words; give numbers from 0 to "
            f"{len(words) - 1}."
        )
    (prompt,) = build_prompts(session.lm.tokenizer, [given], setting.template)

    def tokens_of(numbers: Sequence[int]) -> tuple[int, ...]:
        """Tokens of some words; never the first of all, which models use as a sink for idle attention."""
        spans = [(words[number]["start"], words[number]["end"]) for number in numbers]
        return tuple(token for token in question_tokens(spans, prompt) if token > 0)

    keys, random = item.located.question_tokens, _random_cuts(item, setting.edges)
    alone = [number for number, word in enumerate(words) if word["key"]][:MOST_ALONE]
    cuts = {"all": keys, "chosen": tokens_of(cut_together), **random}
    cuts |= {f"word {number}": tokens_of([number]) for number in alone}
    warnings = []
    if not keys:
        warnings.append("no key words found: nothing could be cut")
    n_random = len(next(iter(random.values()), ()))
    if n_random < len(keys):
        warnings.append(
            f"the random cut takes {n_random} tokens, the key words are {len(keys)}: there are no more others"
        )
    decisions: dict[str, Decisions] = {}
    if QUESTION_ONLY in needs.runs or RAUQ in needs.columns or not needs.reads_model:
        warnings.append(f"cuts are not measured for {trained.name!r}: they change more than it reads of one run")
    else:
        runs = {CLEAN: CLEAN_VARIANT}
        runs |= {name: Variant({0: Cut(tokens, setting.edges)}) for name, tokens in cuts.items() if tokens}
        read = session.features_of_runs("live cuts", [item], runs, needs)
        decisions = {run: decide(trained, features) for run, features in read.items()}
    if "all" in decisions and decisions["all"].outside[0]:
        warnings.append("without the key words the state is unlike those of training")
    (score,) = detector.score_items([item])
    assert score.truth_probability is not None, "an answer that was read has a probability"
    probability = {CLEAN: score.truth_probability}
    probability |= {run: float(decided.probability[0]) for run, decided in decisions.items()}
    if not all(map(np.isfinite, probability.values())):
        raise UserError("The model's states hold NaN or infinity; run the model in float32 (--dtype float32).")
    shown = {run: round(value, 6) for run, value in probability.items()}
    record = score.record()
    return score, {
        "question": record.pop("question"),
        "answer": record.pop("answer"),
        "score": record,
        "words": words,
        "probability": {
            **{run: shown.get(run) for run in (CLEAN, "all", "chosen")},
            "alone": [{"word": n, "value": shown[f"word {n}"]} for n in alone if f"word {n}" in shown],
            "random": [shown[run] for run in random if run in shown],
        },
        "note": NOTE,
        "generated": given.model_answer is None,
        "key_words_by": item.located.rule,
        "chosen": None if chosen is None else cut_together,
        "position": setting.position,
        "edges": setting.edges,
        "warnings": warnings,
    }


def question_words(question: Question, key_spans: Sequence[Span]) -> list[dict[str, Any]]:
    """What can be cut of a question, in its order: the key words, some of them several words long, and all others."""
    text = question.question
    others = [(word.start, word.end) for word in words_as_written(text) if is_clear(word.start, word.end, key_spans)]
    return [
        {"start": start, "end": end, "text": text[start:end], "key": (start, end) in key_spans}
        for start, end in sorted([*key_spans, *others])
    ]


def _random_cuts(item: Item, edges: str) -> dict[str, tuple[int, ...]]:
    """The tokens of each random draw, as a run draws them; draws that are the same count once."""
    draws: dict[str, tuple[int, ...]] = {}
    for draw in range(DRAWS if item.located.question_tokens else 0):
        random = replace(INTERVENTIONS["random"], draw=draw)
        keys = random.cut(item, edges, stream(0, random.draw_name, item.question.question)).keys
        if keys not in draws.values():
            draws[random.draw_name] = keys
    return draws
