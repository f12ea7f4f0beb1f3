"""Matched strings: two questions of one kind exchange their answers, so that words alone cannot tell true from false.

From "capital of France: Paris" and "capital of Peru: Lima" come four items, two of them false: each question stands
once with its own answer and once with the other's, and each answer once where it is true and once where it is not. Such
a group is closed: every word of a question and every word of an answer is in as many true as false items of it. From
words, answers or relations nothing can then be learned, as long as groups stay whole (a bag of words gives each word
the weight 0). What tells the four apart is only how question and answer fit together.

Questions are of one kind if they have the same relation; without one, if they ask with the same word and their answers
look alike (a number, one word, several). Two can be paired if no accepted answer of either is accepted by the other,
and no word of content stands both in a question and in an answer of the pair. The most frequent answers are paired
first, with each other: more questions find a partner, and answers meet others about as frequent as they are.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.grade import grade
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, words
from anchorscope.spans.words import EMPTY_WORDS, QUESTION_WORDS
from anchorscope.stats.streams import Priorities, drawn, priorities

SIZE = 4
"""Items of a group: two questions, two answers each."""


@dataclass(frozen=True)
class MatchedPair:
    """Two questions whose answers are exchanged, by their places in the list they came from."""

    first: int
    """The earlier one."""
    second: int
    """The later one."""
    kind: str
    """What both are: their relation, or how they ask and what their answers look like."""


@dataclass(frozen=True)
class Matching:
    """The pairs of a question set, and what could not be paired."""

    pairs: tuple[MatchedPair, ...]
    """By their first question; no question is in two."""
    n_questions: int
    """Questions that were looked at."""
    repeated: int
    """Left out because the answer is in the question, or is not accepted by the grader itself."""
    alone: int
    """Left out because no other question of the kind could exchange answers with it."""
    without_relation: int
    """Questions among all that have no relation, whose kind was read off their words."""

    def told(self) -> str | None:
        """What has to be said of the questions that are left out; None if none is."""
        left_out = []
        if self.repeated:
            left_out.append(f"{self.repeated} whose answer shares a word with the question or is not graded as right")
        if self.alone:
            left_out.append(f"{self.alone} to which no other question of the same kind has a clearly false answer")
        if not left_out:
            return None
        return f"of {self.n_questions} questions {' and '.join(left_out)} are left out"


def match_questions(questions: Sequence[Question], seed: int) -> Matching:
    """Pairs the questions of each kind; which of equally good partners is found is drawn with the seed."""
    fit = [index for index, one in enumerate(questions) if _has_clear_answer(one)]
    kinds: dict[str, list[int]] = {}
    for index in fit:
        kinds.setdefault(kind_of(questions[index]), []).append(index)
    order = priorities(seed, "matched", [one.item_id for one in questions])
    pairs = [
        MatchedPair(min(pair), max(pair), kind)
        for kind, members in sorted(kinds.items())
        for pair in _paired(questions, members, order)
    ]
    return Matching(
        pairs=tuple(sorted(pairs, key=lambda pair: pair.first)),
        n_questions=len(questions),
        repeated=len(questions) - len(fit),
        alone=len(fit) - 2 * len(pairs),
        without_relation=sum(one.relation is None for one in questions),
    )


def some_pairs(matching: Matching, questions: Sequence[Question], most: int | None, seed: int) -> list[MatchedPair]:
    """All pairs, or so many of them drawn at random."""
    if most is None or len(matching.pairs) <= most:
        return list(matching.pairs)
    names = [f"{questions[pair.first].item_id}\n{questions[pair.second].item_id}" for pair in matching.pairs]
    return [matching.pairs[place] for place in drawn(priorities(seed, "matched pairs", names), most)]


def true_answer(question: Question) -> str:
    """The answer that stands for a question: the first of those accepted, which is how datasets name it.

    Sets without relations list what redirects to the answer, in any order: there it is the form closest to the others.
    """
    if question.relation is not None or len(question.answers) < 3:
        return question.answers[0]
    forms = [set(words(answer)) for answer in question.answers]
    alike = [sum(len(one & other) / max(1, len(one | other)) for other in forms) for one in forms]
    return question.answers[int(np.argmax(alike))]


def matched_questions(questions: Sequence[Question], pairs: Iterable[MatchedPair]) -> list[Question]:
    """The four items of each pair, one pair after the other, with their answers and labels."""
    found = []
    for pair in pairs:
        for own, other in ((pair.first, pair.second), (pair.second, pair.first)):
            asked = questions[own]
            for truthful, giver in ((True, own), (False, other)):
                item_id, given = f"{asked.item_id}:{'true' if truthful else 'false'}", true_answer(questions[giver])
                found.append(replace(asked, item_id=item_id, model_answer=given, truthful=truthful))
    return found


def kind_of(question: Question) -> str:
    """What a question may exchange answers within."""
    if question.relation is not None:
        return question.relation
    asking = next((word for word in words(question.question) if word in QUESTION_WORDS), "no question word")
    answer = words(true_answer(question))
    words_in_it = "one word" if len(answer) < 2 else "several words"
    return f"{asking}, {'number' if any(word[0].isdigit() for word in answer) else words_in_it}"


def imbalances(questions: Sequence[Question], groups: NDArray[np.integer]) -> list[str]:
    """Questions and answers that are not in as many true as false items of a group: by design there is none."""
    counts: dict[tuple[int, str], int] = {}
    for one, group in zip(questions, groups.tolist(), strict=True):
        for text in (f"question {one.question}", f"answer {one.model_answer}"):
            counts[group, text] = counts.get((group, text), 0) + (1 if one.truthful else -1)
    return [text for (_, text), count in counts.items() if count]


def _has_clear_answer(question: Question) -> bool:
    answer = true_answer(question)
    return not _shares_words(question.question, answer) and grade(answer, question.answers, question.question)


def _shares_words(question: str, answer: str) -> bool:
    return not (set(words(question)) & set(words(answer))) <= EMPTY_WORDS


def _paired(questions: Sequence[Question], members: Sequence[int], order: Priorities) -> Iterable[tuple[int, int]]:
    """Pairs among questions of one kind: always one with the answer that most of the rest have, and the next best."""
    answers: dict[str, list[int]] = {}
    for index in sorted(members, key=lambda index: (-int(order[index]), index)):
        answers.setdefault(normalise(true_answer(questions[index])), []).append(index)  # drawn from the end
    heap = [_entry(answer, rest, order) for answer, rest in answers.items()]
    heapq.heapify(heap)
    while heap:
        *_, answer = heapq.heappop(heap)
        index = answers[answer].pop()
        passed = []
        while heap:
            passed.append(heapq.heappop(heap))
            others = answers[passed[-1][-1]]
            found = next((other for other in reversed(others) if _exchange(questions[index], questions[other])), None)
            if found is not None:
                others.remove(found)
                yield index, found
                break
        for one in {answer, *(entry[-1] for entry in passed)}:
            if answers[one]:
                heapq.heappush(heap, _entry(one, answers[one], order))


def _entry(answer: str, rest: Sequence[int], order: Priorities) -> tuple[int, int, str]:
    """The answer with most questions comes first; of equals, the one whose next question was drawn first."""
    return -len(rest), int(order[rest[-1]]), answer


def _exchange(first: Question, second: Question) -> bool:
    """Whether each has an answer that is clearly false for the other."""
    return all(
        not _shares_words(asked.question, true_answer(giver))
        and not any(grade(answer, asked.answers, asked.question) for answer in giver.answers)
        for asked, giver in ((first, second), (second, first))
    )
