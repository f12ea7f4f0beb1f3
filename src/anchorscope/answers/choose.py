"""Which questions are asked: each once, none that the prompt's examples answer, at most `limit` at random; and whether
they can give enough answers for a run, before a model is loaded.

One pass over the stream, in the memory of the questions that are asked: a question's seeded hash shows whether it came
before, and the questions with the smallest hashes are the sample. So the draw does not depend on the order of the file
or on its other questions, and a smaller limit draws from a larger one's questions.

Probes need 30 true and 30 false answers. There are no more answers than questions, and where labels are supplied, no
more true ones than they say. Where true and false answers are balanced within relations, every relation gives as many
of each as of its rarer kind.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anchorscope.answers.template import FEW_SHOT
from anchorscope.datasets.catalog import KeptQuestions, Reading
from anchorscope.datasets.question import Question, asks_yes_no
from anchorscope.datasets.text import normalise, question_key, small_hash, words_once
from anchorscope.errors import TooFewAnswers, UserError, unknown

YES_NO = ("drop", "keep")
"""What becomes of questions that can only be answered with yes or no: chance gets half of them right."""
_FEW_SHOT_QUESTIONS = frozenset(question_key(example.question) for example in FEW_SHOT)
_FEW_SHOT_SUBJECTS = frozenset(normalise(example.subject) for example in FEW_SHOT)


@dataclass(frozen=True)
class QuestionSample:
    """The questions of one dataset that are asked, and how many of its rows are not, by reason."""

    questions: list[Question]
    read: int
    bad: int
    """Rows that could not be used; a question without any word has no key words to cut."""
    repeated: int
    few_shot: int
    """Questions left out because the prompt's examples speak of them."""
    yes_no: int = 0


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
    counts = {"bad": reading.bad, **left_out}
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no rows"
    hint = "--yes-no keep asks the yes/no questions" if left_out["yes/no"] else "check that the file is the right one"
    return f"The dataset has no question to ask: {reading.rows:,} rows, of which {told}; {hint}."


PER_CLASS = 30
"""True answers, and false ones, that are needed: with fewer, an inner training half holds fewer than ten of each."""
NEEDED = 2 * PER_CLASS
"""Answers, and so questions, that it needs at the least."""
RELATIONS = 20_000
"""Different relations that are counted apart."""
FOR_A_CHART = 300
"""Used answers below which intervals are wide, and most of what a run asks stays undecided."""
_WANTED = f"at least {NEEDED} ({PER_CLASS} true and {PER_CLASS} false answers); a chart needs a few hundred"


@dataclass(frozen=True)
class Outlook:
    """What a question set can give at the most."""

    questions: int
    empty: int
    """Of these, how many bring an answer without any text: it is not used."""
    supplied: tuple[int, int]
    """True and false labels that the questions bring."""
    most: tuple[int, int]
    """True and false answers, if the model's own all turned out so."""
    pairs: int
    """True answers that can be used with as many false ones."""
    balance: str

    @property
    def is_enough(self) -> bool:
        """Whether a run is possible; how many answers are true is the model's matter."""
        return self.pairs >= PER_CLASS

    @property
    def sentence(self) -> str:
        """What to say of it; empty where there is nothing to warn of."""
        count = f"{self.questions:,} question{'s' * (self.questions != 1)}"
        if self.empty:
            count += f" ({self.empty:,} with an empty answer)"
        if self.is_enough:
            few = f"{count}: a chart needs a few hundred, with fewer most of it stays undecided"
            return few if self.questions - self.empty < FOR_A_CHART else ""
        if self.questions - self.empty < NEEDED:
            return f"{count}: too few for a run, which needs {_WANTED}"
        rarer, kind = min(zip(self.most, ("true", "false"), strict=True))
        if rarer < PER_CLASS:
            return f"{count}, by their labels at most {rarer} {kind} answers: too few for a run, which needs {_WANTED}"
        return (
            f"{count}, at most {self.pairs} true and {self.pairs} false answers when balanced within relations: too "
            f"few for a run, which needs {_WANTED}; --balance dataset balances over all relations"
        )


class LabelCounter:
    """Counts what questions can give, one question after the other."""

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self.questions = self.empty = 0
        self.strata: dict[str, list[int]] = {}  # by relation: labelled false, labelled true, open
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        """One more question; each must come once."""
        self.questions += 1
        if question.model_answer is not None and not question.model_answer.strip():
            self.empty += 1
            return
        relation = question.relation or ""
        if relation not in self.strata and len(self.strata) > RELATIONS:
            relation = ""  # a column that says something else in every row is none of relations
        counts = self.strata.setdefault(relation, [0, 0, 0])
        counts[2 if question.truthful is None else int(question.truthful)] += 1

    def outlook(self, balance: str = "relation") -> Outlook:
        """What the questions can give when they are balanced so."""
        false, true, unknown = (sum(counts[place] for counts in self.strata.values()) for place in range(3))
        strata = list(self.strata.values()) if balance == "relation" else [[false, true, unknown]]
        pairs = sum(min(t + u, f + u, (t + f + u) // 2) for f, t, u in strata)
        return Outlook(self.questions, self.empty, (true, false), (true + unknown, false + unknown), pairs, balance)


def require_possible(outlooks: Mapping[str, Outlook], limit: int | None) -> None:
    """Refuses a run that none of its datasets can be enough for; with one that can be, the others are reported."""
    if any(one.is_enough for one in outlooks.values()):
        return
    name, found = next(iter(outlooks.items()))
    more = f"raise --limit (now {limit:,})" if limit is not None and limit < FOR_A_CHART else "add questions to it"
    raise TooFewAnswers(f"Dataset {name!r} has too few questions: {found.sentence}; {more}.")
