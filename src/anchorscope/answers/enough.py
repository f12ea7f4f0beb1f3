"""Whether a question set can give enough answers for a run, told before a model is loaded.

Probes need 30 true and 30 false answers. How many a model gives is known only afterwards, but the file sets a limit:
there are no more answers than questions, and where labels are supplied, no more true ones than they say. Where true
and false answers are balanced within relations, every relation gives as many of each as of its rarer kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anchorscope.datasets.limits import RELATIONS
from anchorscope.datasets.question import Question
from anchorscope.errors import TooFewAnswers

PER_CLASS = 30
"""True answers, and false ones, that are needed: with fewer, an inner training half holds fewer than ten of each."""
NEEDED = 2 * PER_CLASS
"""Answers, and so questions, that it needs at the least."""
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
