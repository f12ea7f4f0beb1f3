"""What the question tells the grader: what it already says itself, whether it offers a choice or asks for a person.

An answer that only gives the question's own name back is no answer, though lists of accepted answers that were gathered
from redirects often hold it ("Who is Robin Hood's enemy?"). It is one where the question offers a choice, where
it asks for a capital, and where the name is a part of a longer one ("the museum of the Canton of Geneva").
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from anchorscope.answers.grade_words import OPENERS, PERSONS, SUFFIXES, singular, stands_in
from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences

_WHO = re.compile(r"\b(?:who|whom|whose|who's)\b", re.I)
_WHICH = re.compile(r"\b(?:which|what|name)\b", re.I)
_RUN = re.compile(r"\w+")
_BEFORE_PERSON, _LOOKED_AT = 4, 12  # words between "which" and a person; parts of words that are looked at
_CHOICE = re.compile(
    r"\b(?:or|between|among|out of|of these|of the following)\b|(?-i:\bor(?=[A-Z]))|"
    r"^(?=.*\band\b).*\b(?:(?:old|young|eld|earli|lat|larg|bigg|small|tall|long|short|high|clos|new|near|few|great)er|"
    r"more|less|first|both)\b",
    re.I | re.S,
)
_SEVERAL = re.compile(
    r"\b(?:which|what|the|name|are)\s+(?:the\s+)?(?:two|three|four|five|six|seven|eight|nine|ten|[2-9]|10)\b", re.I
)
_SENTENCE = 6
"""An answer of so many words is a sentence, which may restate the question."""

_SHORTEST_PART = 4
"""Letters that a part of an option needs to stand for it."""


@dataclass(frozen=True)
class ParsedQuestion:
    """A question as the grader sees it."""

    text: str
    located: tuple[Word, ...]
    words: frozenset[str]
    """Its words, and the singular of each."""
    asks_person: bool
    """Whether it asks for a person, so that a surname may be enough."""
    asks_several: bool
    """Whether it asks for more than one thing, so that one of them is not enough."""
    offers_choice: bool
    """Whether it offers the answers to choose from."""
    asks_capital: bool
    """Whether it asks for a capital, which may have the name of its country."""

    def gives(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether naming `alias` in this answer only repeats the question."""
        texts = [word.text for word in self.located]
        answer_words = [word for word in answer if word not in ARTICLES]
        plain = [text for text in texts if text not in ARTICLES]
        if self.offers_choice:
            return False
        if len(answer_words) > len(alias) and stands_in(answer_words, plain):
            return True
        places = list(occurrences(alias, texts))
        if not places:
            joined = [word.text for word in located_words(self.text)]  # "womens", where `located` has "women" and "'s"
            return any(True for _ in occurrences(alias, joined)) or self._shortens_a_name(alias)
        if self.asks_capital or any(self._inside_a_name(first, after) for first, after in places):
            return False
        named = any(self._written_as_name(first, after) for first, after in places)
        restated = len(answer) >= _SENTENCE and len(self.words.intersection(answer_words)) >= _SENTENCE // 2
        return named or restated

    def prefers_another(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether an answer to a choice names another option first ("B is older than A") or as well ("A and B")."""
        if not self.offers_choice:
            return False
        first, after = next(iter(occurrences(alias, answer)), (0, len(answer)))
        capitalised = {word.text for index, word in enumerate(self.located) if self._is_capitalised(index)}
        names = capitalised.difference(alias)
        if any(word in names and len(word) > 3 for word in answer[:first]):
            return True
        return tuple(answer[after : after + 1]) == ("and",) and any(word in names for word in answer[after + 1 :])

    def is_another_option(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether the question offers this accepted answer and, apart from it, what the answer says."""
        texts = [word.text for word in self.located if word.text not in ARTICLES]
        if not self.offers_choice or stands_in(answer, alias):
            return False
        return stands_in(alias, texts) and stands_in(answer, texts)

    def chooses(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether a choice is answered by a part of this option that no other part of the question has."""
        texts = [word.text for word in self.located if word.text not in ARTICLES]
        if not self.offers_choice or not stands_in(answer, alias) or sum(map(len, answer)) < _SHORTEST_PART:
            return False
        return len(list(occurrences(answer, texts))) == len(list(occurrences(alias, texts))) == 1

    def _is_capitalised(self, index: int) -> bool:
        """Whether a word is written as a name."""
        word = self.located[index]
        return self.text[word.start].isupper() and not (index == 0 and word.text in OPENERS)

    def _adjacent(self, index: int) -> bool:
        """Whether only white space or a hyphen stands between word `index` and the next."""
        return not self.text[self.located[index].end : self.located[index + 1].start].strip(" -–'’")

    def _inside_a_name(self, first: int, after: int) -> bool:
        """Whether the words are a part of a longer name, or say by whom or where something is."""
        return self._name_goes_on(after) or (first > 0 and self._name_came_before(first, after))

    def _name_goes_on(self, after: int) -> bool:
        """After the words: "Geneva Airport", "Sonnet 18", "Robert Downey, Jr.", "Bach's Mass"."""
        rest = self.located[after : after + 2]
        if not rest:
            return False
        if rest[0].text == "'s":
            return len(rest) == 2 and self._is_capitalised(after + 1)
        is_name = self._is_capitalised(after) or rest[0].text[0].isdigit()
        return rest[0].text in SUFFIXES or (is_name and self._adjacent(after - 1))

    def _name_came_before(self, first: int, after: int) -> bool:
        """Before the words: "Canton of Geneva", "Lake Geneva", "songs by Bach", "Mass (Bach work)", "Lima, Peru?"."""
        before = self.located[first - 1].text
        between = self.text[self.located[first - 1].end : self.located[first].start].strip()
        if before == "by" or between.endswith("("):
            return True
        if not self._adjacent(first - 1):
            return between == "," and after == len(self.located) and self._is_capitalised(first - 1)
        of_name = before == "of" and first > 1 and self._is_capitalised(first - 2) and self._adjacent(first - 2)
        return of_name or (self._is_capitalised(first - 1) and before not in OPENERS)

    def _written_as_name(self, first: int, after: int) -> bool:
        start, end = self.located[first].start, self.located[after - 1].end
        quoted = self.text[start - 1 : start] in tuple("'\"‘“’”") and self.text[end : end + 1] in tuple("'\"’”")
        return quoted or any(self._is_capitalised(index) for index in range(first, after))

    def _shortens_a_name(self, alias: Sequence[str]) -> bool:
        """Whether the words are a name of the question without its middle: "Mary Blunt" of "Mary Ann Blunt"."""
        texts = [word.text for word in self.located]
        if len(alias) < 2 or alias[0] not in texts or alias[-1] not in texts:
            return False
        start, end = texts.index(alias[0]), texts.index(alias[-1])
        run = texts[start : end + 1]
        shortened = len(alias) <= len(run) <= len(alias) + 2 and set(run).issuperset(alias)
        return shortened and all(self._is_capitalised(index) for index in range(start, end + 1))


def _asks_person(question: str) -> bool:
    """Whether it says "who", or "which", "what" or "name" with a person at most four words behind it.

    Parts that an apostrophe or a hyphen joins are one word, and each may be the person: "which ex-president".
    """
    if _WHO.search(question):
        return True
    for asking in _WHICH.finditer(question):
        words, at = 0, asking.end()
        for run in islice(_RUN.finditer(question, at), _LOOKED_AT):
            if run[0].lower() in PERSONS:
                return True
            words += words == 0 or bool(question[at : run.start()].strip("'’-"))
            if words > _BEFORE_PERSON:
                break
            at = run.end()
    return False


@lru_cache(maxsize=1 << 10)
def parse_question(question: str) -> ParsedQuestion:
    """Reads a question."""
    located = tuple(located_words(question, split_possessive=True))
    texts = {word.text for word in located}
    return ParsedQuestion(
        text=question,
        located=located,
        words=frozenset(texts | {singular(text) for text in texts}),
        asks_person=_asks_person(question),
        asks_several=bool(_SEVERAL.search(question)),
        offers_choice=bool(_CHOICE.search(question)),
        asks_capital="capital" in texts,
    )
