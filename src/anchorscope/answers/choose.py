"""What a question set holds, which of its questions are asked, and whether they can give enough answers for a run.

Of the distinct questions, the `limit` with the smallest seeded hash are asked: the draw doesn't depend on their order.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.template import FEW_SHOT
from anchorscope.datasets.catalog import Reading
from anchorscope.datasets.question import KNOWN, Question, asks_yes_no
from anchorscope.datasets.text import normalise, question_key, small_hash
from anchorscope.errors import TooFewAnswers, UserError, counted

YES_NO = ("drop", "keep")
"""What happens to yes/no questions, of which chance gets half right."""
_FEW_SHOT_QUESTIONS = frozenset(question_key(example.question) for example in FEW_SHOT)
_FEW_SHOT_SUBJECTS = frozenset(normalise(example.subject) for example in FEW_SHOT)


@dataclass(frozen=True)
class QuestionSample:
    """The questions of one dataset that are asked, and how many of its rows aren't, by reason."""

    questions: list[Question]
    read: int
    bad: int
    """Unusable rows; a question without any word has no key words to cut."""
    repeated: int
    few_shot: int
    """Left out because the prompt's examples are about them."""
    yes_no: int = 0
    empty_rows: int = 0


def is_yes_no(question: Question) -> bool:
    """Whether chance alone would be right half of the time, and no label is supplied."""
    return question.truthful is None and asks_yes_no(
        question.question, question.answers
    )


def choose_questions(
    reading: Reading, limit: int | None, seed: int, yes_no: str = "drop"
) -> QuestionSample:
    """Draws the questions to ask; they keep their order."""
    seen: set[int] = set()
    sample: list[
        tuple[int, int, Question]
    ] = []  # a heap by falling hash, once it is full
    left_out = dict.fromkeys(("repeated", *_REASONS), 0)
    for position, question in enumerate(reading):
        key = small_hash(_all_that_is_asked(question), seed)
        if key in seen:
            left_out["repeated"] += 1
            continue
        seen.add(key)
        reason = why_not_asked(question, yes_no)
        if reason:
            left_out[reason] += 1
            continue
        heapq.heappush(sample, (-key, position, question))
        if limit is not None and len(sample) > limit:
            heapq.heappop(sample)
    if not sample:
        raise UserError(_describe_nothing_to_ask(reading, left_out))
    return QuestionSample(
        questions=[
            question for _, _, question in sorted(sample, key=lambda entry: entry[1])
        ],
        read=reading.rows,
        bad=reading.bad + left_out["wordless"],
        empty_rows=reading.empty,
        repeated=left_out["repeated"],
        few_shot=left_out["few-shot"],
        yes_no=left_out["yes/no"],
    )


def _all_that_is_asked(question: Question) -> str:
    """Equal for questions of which one is asked."""
    texts = question_key(question.question), *question.context, question.thinking
    return "\0".join(filter(None, texts))


_REASONS = ("wordless", "few-shot", "yes/no")


def why_not_asked(question: Question, yes_no: str = "drop") -> str:
    """Why a question isn't asked, one of `_REASONS`; empty if it may be."""
    words = normalise(question.question)
    if not words:
        return "wordless"
    if words in _FEW_SHOT_QUESTIONS or (
        question.subject and normalise(question.subject) in _FEW_SHOT_SUBJECTS
    ):
        return "few-shot"
    return "yes/no" if yes_no == "drop" and is_yes_no(question) else ""


def _describe_nothing_to_ask(reading: Reading, left_out: dict[str, int]) -> str:
    counts = {"bad": reading.bad, "empty": reading.empty, **left_out}
    reasons = (
        ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        or "no rows"
    )
    hint = (
        "--yes-no keep asks the yes/no questions"
        if left_out["yes/no"]
        else "check that the file is the right one"
    )
    return f"The dataset has no question to ask: {reading.rows:,} rows, of which {reasons}; {hint}."


PER_CLASS = 30
"""True, and false, answers needed: with fewer, an inner training half holds fewer than ten of each."""
NEEDED = 2 * PER_CLASS
FOR_A_CHART = 300
"""Used answers below which intervals are wide, and most readings stay undecided."""
_WANTED = f"at least {NEEDED} ({PER_CLASS} true and {PER_CLASS} false answers); a chart needs a few hundred"


@dataclass(frozen=True)
class Outlook:
    questions: int
    empty: int
    """How many of these supply an answer without any text."""
    supplied: tuple[int, int]
    """True and false labels that are supplied."""
    most: tuple[int, int]
    """True and false answers, if all of the model's own turned out that way."""
    pairs: int
    """True answers that can be used with as many false ones."""

    @property
    def is_enough(self) -> bool:
        """Whether a run is possible; how many answers are true depends on the model."""
        return self.pairs >= PER_CLASS

    @property
    def sentence(self) -> str:
        """A warning; empty if there is nothing to warn of."""
        count = counted(self.questions, "question")
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
    """Counts what questions can give."""

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self.questions = self.empty = 0
        self.strata: dict[
            str, list[int]
        ] = {}  # by relation: labelled false, labelled true, open
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        self.questions += 1
        if question.model_answer is not None and not question.model_answer.strip():
            self.empty += 1
            return
        counts = self.strata.setdefault(question.relation or "", [0, 0, 0])
        counts[2 if question.truthful is None else int(question.truthful)] += 1

    def outlook(self, balance: str = "relation") -> Outlook:
        """What the questions can give under this balance."""
        false, true, unknown = (
            sum(counts[kind] for counts in self.strata.values()) for kind in range(3)
        )
        strata = (
            list(self.strata.values())
            if balance == "relation"
            else [[false, true, unknown]]
        )
        pairs = sum(min(t + u, f + u, (t + f + u) // 2) for f, t, u in strata)
        return Outlook(
            self.questions,
            self.empty,
            (true, false),
            (true + unknown, false + unknown),
            pairs,
        )


def require_possible(outlooks: Mapping[str, Outlook], limit: int | None) -> None:
    """Refuses a run for which none of its datasets can be enough."""
    if any(outlook.is_enough for outlook in outlooks.values()):
        return
    more = (
        f"raise --limit (now {limit:,})"
        if limit is not None and limit < FOR_A_CHART
        else "add questions to it"
    )
    short = [
        f"Dataset {name!r} has too few questions: {outlook.sentence}"
        for name, outlook in outlooks.items()
    ]
    raise TooFewAnswers(f"{'. '.join(short)}; {more}.")


_OPTIONAL = {
    name: "exact_spans" if name == "exact_question" else name for name in KNOWN[3:]
}  # columns and fields


def take_survey(
    questions: Iterable[Question], examples: int = 3
) -> tuple[dict[str, Any], Outlook, list[Question]]:
    """Counts over the distinct questions, what a run would get from them, and the first few.

    Those left out for a reason and those asked add up to the distinct questions.
    """
    of_questions = ("questions", "repeated", *_REASONS)
    of_supplied_answers = ("answers", "labelled_true", "several_lines")
    counts = Counter(dict.fromkeys((*of_questions, *of_supplied_answers), 0))
    filled, relations, metadata = (
        Counter(dict.fromkeys(_OPTIONAL, 0)),
        Counter[str](),
        Counter[str](),
    )
    seen, first, asked = set[int](), list[Question](), LabelCounter()
    for question in questions:
        digest = small_hash(_all_that_is_asked(question))
        if digest in seen:
            counts["repeated"] += 1
            continue
        seen.add(digest)
        counts["questions"] += 1
        counts["answers"] += len(question.answers)
        counts["labelled_true"] += question.truthful is True
        lines = (question.model_answer or "").strip().splitlines()
        counts["several_lines"] += len(lines) > 1
        filled.update(
            name
            for name, field in _OPTIONAL.items()
            if getattr(question, field) not in (None, ())
        )
        relations.update([question.relation] if question.relation else [])
        metadata.update(
            name for name, value in question.metadata.items() if value is not None
        )
        reason = why_not_asked(question)
        if reason:
            counts[reason] += 1
        else:
            asked.add(question)
        if len(first) < examples:
            first.append(question)
    record = {
        **{re.sub("[-/]", "_", name): count for name, count in counts.items()},
        "filled": filled,
        "relations": dict(relations.most_common()),
        "metadata": metadata,
    }
    return record, asked.outlook(), first
