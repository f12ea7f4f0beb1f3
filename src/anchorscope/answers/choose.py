"""Which questions are asked: each once, none that the prompt's own examples answer, and at most so many, at random.

One pass over the stream, in the memory of the questions that are asked: a question's seeded hash tells whether it was
there before, and the questions with the smallest hashes are the sample. So the draw does not depend on the order of
the file or on its other questions, and a smaller limit draws from a larger one's questions.
"""

import heapq
from dataclasses import dataclass

from anchorscope.answers.template import FEW_SHOT
from anchorscope.datasets.limits import KeptQuestions
from anchorscope.datasets.question import Question, asks_yes_no
from anchorscope.datasets.reading import Reading
from anchorscope.datasets.text import normalise, question_key, small_hash, words_once
from anchorscope.errors import UserError, unknown

YES_NO = ("drop", "keep")
"""What becomes of questions that can only be answered with yes or no: chance gets half of them right."""
_FEW_SHOT_QUESTIONS = frozenset(question_key(example.question) for example in FEW_SHOT)
_FEW_SHOT_SUBJECTS = frozenset(normalise(example.subject) for example in FEW_SHOT)


@dataclass(frozen=True)
class QuestionSample:
    """The questions of one dataset that are asked, and how many of its rows are not, by reason."""

    questions: list[Question]
    read: int
    """Rows of the dataset."""
    bad: int
    """Rows that could not be used; a question without any word has no key words to cut."""
    repeated: int
    """Rows whose question was there already."""
    few_shot: int
    """Questions left out because the prompt's examples speak of them."""
    yes_no: int = 0
    """Questions left out because their answer is yes or no."""


def is_yes_no(question: Question) -> bool:
    """Whether chance alone would be right half of the time, and nobody has judged an answer yet."""
    return question.truthful is None and asks_yes_no(question.question, question.answers)


def _words(text: str) -> str:
    """`normalise` without its memory: a million questions are seen once each."""
    return " ".join(words_once(text))


def choose_questions(reading: Reading, limit: int | None, seed: int, yes_no: str = "drop") -> QuestionSample:
    """Draws the questions to ask; they keep their order."""
    if yes_no not in YES_NO:
        raise unknown("value of --yes-no", yes_no, YES_NO)
    seen: set[int] = set()
    drawn: list[tuple[int, int, Question]] = []  # a heap by falling hash, once it is full
    kept = KeptQuestions(reading.limits, "Ask fewer of them, like --limit 10000, or drop long columns.")
    left_out = dict.fromkeys(("wordless", "repeated", "few-shot", "yes/no"), 0)
    for position, question in enumerate(reading):
        words = _words(question.question)
        key = small_hash(words or question.question, seed)
        if key in seen:
            left_out["repeated"] += 1
            continue
        seen.add(key)
        reason = why_not_asked(question, words, yes_no)
        if reason:
            left_out[reason] += 1
            continue
        kept.add(question)
        if limit is None or len(drawn) < limit:
            heapq.heappush(drawn, (-key, position, question))
        else:
            kept.drop(heapq.heappushpop(drawn, (-key, position, question))[2])
    if not drawn:
        raise UserError(_nothing(reading, left_out))
    return QuestionSample(
        questions=[question for _, _, question in sorted(drawn, key=lambda one: one[1])],
        read=reading.rows,
        bad=reading.bad + left_out["wordless"],
        repeated=left_out["repeated"],
        few_shot=left_out["few-shot"],
        yes_no=left_out["yes/no"],
    )


def why_not_asked(question: Question, words: str | None = None, yes_no: str = "drop") -> str:
    """Why a question is not asked; empty if it may be. `words` are the question's, where they are known."""
    if words is None:
        words = _words(question.question)
    if not words:
        return "wordless"
    if words in _FEW_SHOT_QUESTIONS or (question.subject and _words(question.subject) in _FEW_SHOT_SUBJECTS):
        return "few-shot"
    return "yes/no" if yes_no == "drop" and is_yes_no(question) else ""


def _nothing(reading: Reading, left_out: dict[str, int]) -> str:
    """Why there is nothing to ask."""
    counts = {"bad": reading.bad, **left_out}
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no rows"
    hint = "--yes-no keep asks the yes/no questions" if left_out["yes/no"] else "check that the file is the right one"
    return f"The dataset has no question to ask: {reading.rows:,} rows, of which {told}; {hint}."
