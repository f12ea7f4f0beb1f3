"""Names that differ and still mean the same ("Einstein", "the Nile" for "River Nile"), depending on the question.

These rules compare the whole answer. Other ways to write an accepted answer follow from itself (`forms`); what may be
left out depends on the question. An answer that only repeats a name of the question is no answer, though lists of
redirects often accept it, unless the question offers a choice or asks for a capital, or a longer name has it.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import islice

from rapidfuzz.distance import OSA

from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences, words


def _table(name: str) -> dict[str, dict[str, str]]:
    return tomllib.loads(
        (files("anchorscope.answers") / name).read_text(encoding="utf-8")
    )


LISTS = _table("grade_words.toml")
WORDS = {name: frozenset(text.split()) for name, text in LISTS["words"].items()}
_SHORTENED: dict[str, str] = LISTS["shortened"]
_ORDINAL_WORDS = """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
    twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth"""
_ORDINALS = dict(
    zip(_ORDINAL_WORDS.split(), (*range(1, 20), *range(20, 100, 10)), strict=True)
)
_DIGIT_ORDINAL = re.compile(r"([0-9]{1,9})(?:st|nd|rd|th)")
_TENS_DIGITS = re.compile(r"0*[2-9]0")
_ROMAN = re.compile(
    r"(?=.)m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
)
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_ROMAN_ALONE = ("i", "v", "x")  # "C", "D", "L" and "M" alone are letters: "Vitamin C"

# letters from which "pingpong" and "ping pong" are taken for the same
_SPACING_LENGTH = 5


def _names(line: str) -> frozenset[tuple[str, ...]]:
    return frozenset(words(name) for name in line.split("|"))


PLACES: list[frozenset[tuple[str, ...]]] = []
"""States, provinces and countries, each with its code and names."""
_REGIONS: set[tuple[str, ...]] = set()
"""Codes and names of parts of a country."""
_STATES = set(_names(LISTS["phrases"]["other_places"]))
"""Names of countries and large parts of them, of which none holds another as its part."""
for _kind, _codes in _table("places.toml").items():
    for _code, _line in _codes.items():
        PLACES.append(_names(f"{_code}|{_line}"))
        if _kind != "countries":
            _REGIONS |= PLACES[-1]
        if _kind not in ("provinces_ca", "states_au"):
            _STATES |= _names(_line)
_NAMESAKES = _names(LISTS["phrases"]["namesakes"])


@lru_cache(maxsize=1 << 10)
def longer_names(name: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Known names that hold another one's name: "West Virginia" of Virginia, "Martin Luther King" of Martin Luther."""
    for known in (_STATES, _NAMESAKES):
        if name in known:
            return [
                other
                for other in known
                if other != name
                and stands_in(name, other)
                and not any(place.issuperset((name, other)) for place in PLACES)
            ]
    return []


def ordinal_value(word: str) -> int | None:
    """8 for "eighth" and "8th"; None for any other word."""
    written = _DIGIT_ORDINAL.fullmatch(word)
    return int(written.group(1)) if written else _ORDINALS.get(word)


def roman_value(word: str) -> int | None:
    """8 for "viii"; None for other words, and for single letters that are hardly numerals."""
    if (len(word) == 1 and word not in _ROMAN_ALONE) or not _ROMAN.fullmatch(word):
        return None
    values = [_ROMAN_VALUES[letter] for letter in word]
    return sum(
        -value if value < max(values[index:]) else value
        for index, value in enumerate(values)
    )


def numerals(own: Sequence[str], roman_ending: str | None = None) -> tuple[str, ...]:
    """The words with ordinals as "8th" and later Roman numerals as numbers with that ending, if any."""
    read: list[str] = []
    for index, word in enumerate(own):
        ordinal, roman = (
            ordinal_value(word),
            roman_value(word) if index and roman_ending is not None else None,
        )
        if ordinal is not None:
            tens = read and ordinal < 10 and _TENS_DIGITS.fullmatch(read[-1])
            if tens:  # "twenty first" was read "20 first"
                ordinal += int(read.pop())
            read.append(f"{ordinal}th")
        else:
            read.append(word if roman is None else f"{roman}{roman_ending}")
    return tuple(read)


def readings(own: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The words as they are, with Roman numerals as ordinals, and as counts; one reading if all are equal."""
    plain = tuple(map(_SHORTENED.get, own, own))
    if not any(map(_may_be_numeral, plain)):
        return (plain,)
    ordinals, counts = numerals(plain, "th"), numerals(plain, "")
    if len(ordinals) < len(plain):  # "twenty fifth" does not hold "fifth"
        plain = ordinals
    return (plain,) if plain == ordinals == counts else (plain, ordinals, counts)


@lru_cache(maxsize=1 << 16)  # accepted answers have most words in common
def _may_be_numeral(word: str) -> bool:
    return ordinal_value(word) is not None or roman_value(word) is not None


# an accepted answer is read once for every question that accepts it
@lru_cache(maxsize=1 << 16)
def alias_readings(alias: str) -> tuple[tuple[str, ...], ...]:
    return readings(words(alias))


def singular(word: str) -> str:
    """A regular plural's singular; any other word stays."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def same_noun(word: str, other: str) -> bool:
    """Whether two words are the same noun, singular or plural."""
    short, long = sorted((word, other), key=len)
    return short == long or (
        len(short) > 2
        and (long in (f"{short}s", f"{short}es") or singular(long) == short)
    )


def same_but_spacing(words_a: Sequence[str], words_b: Sequence[str]) -> bool:
    """Whether two texts differ only in spacing: "ping pong" and "pingpong", not "19 84" and "1984"."""
    joined = "".join(words_a)
    return (
        len(joined) >= _SPACING_LENGTH
        and joined.isalpha()
        and joined == "".join(words_b)
    )


def stands_in(needle: Sequence[str], haystack: Sequence[str]) -> bool:
    """Whether the words of `needle` stand together in `haystack`."""
    return any(True for _ in occurrences(needle, haystack))


_WHO = re.compile(r"\b(?:who|whom|whose|who's)\b", re.I)
_WHICH = re.compile(r"\b(?:which|what|name)\b", re.I)
_RUN = re.compile(r"\w+")
_BEFORE_PERSON, _CHECKED_PARTS = (
    4,
    12,
)  # words between "which" and a person; parts of words that are checked
_CHOICE = re.compile(
    r"\b(?:or|between|among|out of|of these|of the following)\b|(?-i:\bor(?=[A-Z]))|"
    r"^(?=.*\band\b).*\b(?:(?:old|young|eld|earli|lat|larg|bigg|small|tall|long|short|high|clos|new|near|few|great)er|"
    r"more|less|first|both)\b",
    re.I | re.S,
)
_SEVERAL = re.compile(
    r"\b(?:which|what|the|name|are)\s+(?:the\s+)?(?:two|three|four|five|six|seven|eight|nine|ten|[2-9]|10)\b",
    re.I,
)
_SENTENCE = 6  # words of an answer that may restate the question
_SHORTEST_PART = 4  # letters that a part of an option needs to stand for it


@dataclass(frozen=True)
class ParsedQuestion:
    text: str
    located: tuple[Word, ...]
    texts: tuple[str, ...]
    words: frozenset[str]
    """Its words, and the singular of each."""
    asks_person: bool
    """Whether it asks for a person, so that a surname may be enough."""
    asks_several: bool
    """Whether it asks for several things, so that one isn't enough."""
    offers_choice: bool
    asks_capital: bool
    """Whether it asks for a capital, which may share its country's name."""

    def is_repeated(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether naming `alias` in this answer says nothing that the question doesn't, or another option, too."""
        return self.gives(alias, answer) or self.prefers_another(alias, answer)

    def gives(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether naming `alias` in this answer only repeats the question."""
        if self.offers_choice:
            return False
        answer_words = [word for word in answer if word not in ARTICLES]
        if len(answer_words) > len(alias) and stands_in(answer_words, self.texts):
            return True
        places = list(occurrences(alias, self.texts))
        if not places:
            joined = [
                word.text for word in located_words(self.text)
            ]  # "womens", where `located` has "women" and "'s"
            return stands_in(alias, joined) or self._shortens_a_name(alias)
        if self.asks_capital or any(
            self._inside_a_name(first, after) for first, after in places
        ):
            return False
        named = any(self._written_as_name(first, after) for first, after in places)
        restated = (
            len(answer) >= _SENTENCE
            and len(self.words.intersection(answer_words)) >= _SENTENCE // 2
        )
        return named or restated

    def prefers_another(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether an answer to a choice names another option first ("B is older than A") or as well ("A and B")."""
        if not self.offers_choice:
            return False
        first, after = next(iter(occurrences(alias, answer)), (0, len(answer)))
        capitalised = {
            word.text
            for index, word in enumerate(self.located)
            if self._is_capitalised(index)
        }
        names = capitalised.difference(alias)
        if any(word in names and len(word) > 3 for word in answer[:first]):
            return True
        return tuple(answer[after : after + 1]) == ("and",) and any(
            word in names for word in answer[after + 1 :]
        )

    def is_another_option(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether the question offers this accepted answer and, separately, the answer."""
        if not self.offers_choice or stands_in(answer, alias):
            return False
        return stands_in(alias, self.texts) and stands_in(answer, self.texts)

    def chooses(self, alias: Sequence[str], answer: Sequence[str]) -> bool:
        """Whether the answer is a part of this option that occurs nowhere else in the question."""
        return (
            self.offers_choice
            and stands_in(answer, alias)
            and sum(map(len, answer)) >= _SHORTEST_PART
            and len(list(occurrences(answer, self.texts))) == 1
            and len(list(occurrences(alias, self.texts))) == 1
        )

    def _is_capitalised(self, index: int) -> bool:
        word = self.located[index]
        return self.text[word.start].isupper() and not (
            index == 0 and word.text in WORDS["openers"]
        )

    def _adjacent(self, index: int) -> bool:
        """Whether only white space or a hyphen stands between word `index` and the next."""
        return not self.text[
            self.located[index].end : self.located[index + 1].start
        ].strip(" -–'’")

    def _inside_a_name(self, first: int, after: int) -> bool:
        """Whether the words are part of a longer name, or say by whom or where something is."""
        return self._name_goes_on(after) or (
            first > 0 and self._name_came_before(first, after)
        )

    def _name_goes_on(self, after: int) -> bool:
        """After the words: "Geneva Airport", "Sonnet 18", "Robert Downey, Jr.", "Bach's Mass"."""
        rest = self.located[after : after + 2]
        if not rest:
            return False
        if rest[0].text == "'s":
            return len(rest) == 2 and self._is_capitalised(after + 1)
        is_name = self._is_capitalised(after) or rest[0].text[0].isdigit()
        return rest[0].text in WORDS["suffixes"] or (
            is_name and self._adjacent(after - 1)
        )

    def _name_came_before(self, first: int, after: int) -> bool:
        """Before the words: "Canton of Geneva", "Lake Geneva", "songs by Bach", "Mass (Bach work)", "Lima, Peru?"."""
        before = self.located[first - 1].text
        between = self.text[
            self.located[first - 1].end : self.located[first].start
        ].strip()
        if before == "by" or between.endswith("("):
            return True
        if not self._adjacent(first - 1):
            return (
                between == ","
                and after == len(self.located)
                and self._is_capitalised(first - 1)
            )
        of_name = (
            before == "of"
            and first > 1
            and self._is_capitalised(first - 2)
            and self._adjacent(first - 2)
        )
        return of_name or (
            self._is_capitalised(first - 1) and before not in WORDS["openers"]
        )

    def _written_as_name(self, first: int, after: int) -> bool:
        start, end = self.located[first].start, self.located[after - 1].end
        quoted = self.text[start - 1 : start] in tuple("'\"‘“’”") and self.text[
            end : end + 1
        ] in tuple("'\"’”")
        return quoted or any(
            self._is_capitalised(index) for index in range(first, after)
        )

    def _shortens_a_name(self, alias: Sequence[str]) -> bool:
        """Whether the words are a name of the question without its middle: "Mary Blunt" of "Mary Ann Blunt"."""
        if len(alias) < 2 or not {alias[0], alias[-1]} <= set(self.texts):
            return False
        start = self.texts.index(alias[0])
        end = self.texts.index(alias[-1])
        run = self.texts[start : end + 1]
        shortened = len(alias) <= len(run) <= len(alias) + 2 and set(run).issuperset(
            alias
        )
        return shortened and all(
            self._is_capitalised(index) for index in range(start, end + 1)
        )


def _asks_person(question: str) -> bool:
    """Whether it says "who", or "which", "what" or "name" with a person at most four words later ("which ex-mayor")."""
    if _WHO.search(question):
        return True
    for asking in _WHICH.finditer(question):
        words, at = 0, asking.end()
        for run in islice(_RUN.finditer(question, at), _CHECKED_PARTS):
            if run[0].lower() in WORDS["persons"]:
                return True
            words += words == 0 or bool(question[at : run.start()].strip("'’-"))
            if words > _BEFORE_PERSON:
                break
            at = run.end()
    return False


@lru_cache(maxsize=1 << 10)
def parse_question(question: str) -> ParsedQuestion:
    located = tuple(located_words(question, split_possessive=True))
    texts = tuple(word.text for word in located)
    return ParsedQuestion(
        text=question,
        located=located,
        texts=texts,
        words=frozenset((*texts, *map(singular, texts))),
        asks_person=_asks_person(question),
        asks_several=bool(_SEVERAL.search(question)),
        offers_choice=bool(_CHOICE.search(question)),
        asks_capital="capital" in texts,
    )


_PARENTHESES = re.compile(r"\s*\(([^()]*)\)")
_LIST = re.compile(r"[,;&]|\band\b", re.I)
_DESCRIBED = re.compile(
    r"[^,;]*?\b([a-z]+) (?=[A-Z])(?=[^,;]*?[A-Z][^,;]*?[A-Z])((?:[A-Z][^\s,;]*(?: |$))+)$"
)
"""A common noun before a name of several words: "Polish astronomer Nicolaus Copernicus"."""
_VOWELS = frozenset("aeiouy")
_LONGEST_NAME = 5
_SHORTEST_SURNAME = 3
# above it, what reads as a Roman numeral is a surname: "Dix" is 509
_HIGHEST_REGNAL = 40
_SHORTEST_ACRONYM = 3
_SHORTEST_MISSPELT = 6
_COMMON = 3.0  # Zipf's scale: once in a million words
_IN_USE = 2.0  # once in ten million


@lru_cache(maxsize=1 << 14)
def forms(alias: str) -> tuple[tuple[str, ...], ...]:
    """Other ways to write an accepted answer, each as words: without parentheses, a side of an "or", a name without its
    description, the part before the only comma, and "Einstein, Albert" reversed."""
    texts = [_PARENTHESES.sub("", alias)]
    texts += [
        inside[3:]
        for inside in _PARENTHESES.findall(alias)
        if inside.lower().startswith("or ")
    ]
    bare = texts[0]
    # an accepted answer that is a sentence: "Emma is a novel in three volumes"
    if len(bare.split()) > _LONGEST_NAME:
        texts.append(re.split(r"\s(?:is|was|are|were)\s", bare)[0])
    if re.search(r"\bor\b|\band other", bare):
        texts += re.split(r"[;,]?\s*\bor\b,?\s*|\s*\band other", bare)
    texts += re.split(r"(?<=\w) as (?=[A-Z])", bare)[:1]  # "Sean Bean as Ned Stark"
    described = _DESCRIBED.match(bare)
    if described and described[1] not in WORDS["prepositions"] | WORDS["particles"]:
        texts.append(described[2])
    head, comma, tail = bare.partition(",")
    if comma and "," not in tail and not re.search(r"[0-9;&]|\band\b", bare):
        texts += [head, f"{tail} {head}"]
    candidates = [form for text in texts for form in readings(words(text))]
    candidates += [moved for form in candidates for moved in _moved_ordinal(form)]
    return tuple(form for form in dict.fromkeys(candidates) if sum(map(len, form)) > 2)


def _moved_ordinal(form: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """ "Second World War" for "World War II", and the other way round."""
    if len(form) > 1 and ordinal_value(form[-1]):
        yield (form[-1], *form[:-1])
    if len(form) > 1 and ordinal_value(form[0]):
        yield (*form[1:], form[0])


def _without_honorifics(name: Sequence[str]) -> tuple[str, ...]:
    """A name without its titles; the "DR" of "DR Congo" is none."""
    rest = tuple(name)
    while len(rest) > 1 and rest[0] in WORDS["titles"] and rest not in _STATES:
        rest = rest[1:]
    return rest


def without_titles(name: Sequence[str]) -> tuple[str, ...]:
    """A name without honorifics before it and degrees after it, but never down to nothing."""
    rest = _without_honorifics(name)
    while len(rest) > 1 and rest[-1] in WORDS["suffixes"]:
        rest = rest[:-1]
    return rest


def without_classes(name: Sequence[str], question: ParsedQuestion) -> tuple[str, ...]:
    """A name without the kind of thing that the question mentions already: "River", "Battle of"."""
    droppable = WORDS["always_classes"] | (WORDS["classes"] & question.words)
    if "mountain" in question.words:
        droppable |= {"mt"}
    rest = tuple(name)
    if len(rest) > 2 and rest[1] == "of" and rest[0] in droppable | WORDS["before_of"]:
        rest = rest[2:]
    elif len(rest) > 1 and rest[0] in droppable:
        rest = rest[1:]
    elif len(rest) > 1 and singular(rest[-1]) in droppable:
        rest = rest[:-1]
    return rest


def _initials(text: str) -> frozenset[str]:
    """The words of a text that are initials: "J", "J.R.R.", "JRR" (but not "LEE" where all is in capitals)."""
    shouted = not any(character.islower() for character in text)
    initials = set()
    for word in located_words(text):
        raw = text[word.start : word.end]
        capitals = not shouted and not any(character.islower() for character in raw)
        if len(word.text) <= 3 and (
            "." in raw or capitals or _VOWELS.isdisjoint(word.text)
        ):
            initials.add(word.text)
    return frozenset(initials)


def _spread(given: Sequence[str], initials: frozenset[str]) -> list[str]:
    return [part for name in given for part in (name if name in initials else (name,))]


def same_person(answer: str, core: Sequence[str], alias: str) -> bool:
    """Whether the answer is the accepted person: the surname, or fitting first names and the surname."""
    accepted = without_titles(readings(words(alias))[0])
    given = without_titles(core)
    if (
        len(accepted) < 2
        or given[-1] != accepted[-1]
        or not _looks_like_a_person(alias)
    ):
        return False
    if len(given[-1]) < _SHORTEST_SURNAME or _is_regnal(given[-1]):
        return False
    if len(given) < len(accepted) and accepted[-len(given) :] == given:
        return not _is_namesake(given, accepted)
    first_names = _spread(accepted[:-1], _initials(alias))
    # The answer may describe before it names: "English author Mary Blunt".
    initials = _initials(answer)
    return any(
        _first_names_fit(first_names, _spread(given[index:-1], initials))
        and not _is_namesake(given[index:], accepted)
        for index in range(len(given) - 1)
    )


def _is_regnal(word: str) -> bool:
    return (roman_value(word) or _HIGHEST_REGNAL) < _HIGHEST_REGNAL


def _is_namesake(given: tuple[str, ...], accepted: tuple[str, ...]) -> bool:
    """Whether both are known people: "John Adams" is not John Quincy Adams."""
    return given != accepted and _NAMESAKES.issuperset((given, accepted))


def _first_names_fit(accepted: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the answer's first names (`other`) fit; it may omit middle ones, but not add any."""
    return len(other) in (1, len(accepted)) and all(
        name == own or (1 in (len(name), len(own)) and name[0] == own[0])
        for name, own in zip(accepted, other, strict=False)
    )


def _looks_like_a_person(alias: str) -> bool:
    located = located_words(alias, numbers=False)
    return 2 <= len(located) <= 6 and all(
        word.text.isalpha()
        and word.text not in WORDS["not_in_a_person"]
        and (alias[word.start].isupper() or word.text in WORDS["particles"])
        for word in located
    )


def _misspelt(
    given: Sequence[str], accepted: Sequence[str], question: ParsedQuestion
) -> bool:
    """Whether names of several words differ in one letter of one long word: "Hans Christian Anderson".

    A known word is another name ("Steve Martin" is not Steve Marvin), unless two other words agree; but where the
    question asks for no person, it may have an ending ("Russian Orthodoxy").
    """
    if len(given) != len(accepted):
        return False
    differing = [
        pair for pair in zip(given, accepted, strict=True) if pair[0] != pair[1]
    ]
    if len(differing) != 1 or len(given) == 1:
        return False
    own, wanted = differing[0]
    if (
        min(len(own), len(wanted)) < _SHORTEST_MISSPELT
        or not (own + wanted).isalpha()
        or own[0] != wanted[0]
        or OSA.distance(own, wanted, score_cutoff=1) > 1
    ):
        return False
    agreeing = set(given) - {own} - WORDS["prepositions"] - WORDS["classes"]
    asks_thing = question.text and not question.asks_person
    has_ending = asks_thing and (own[:-1] == wanted or own == wanted[:-1])
    return len(agreeing) > 1 or has_ending or not _are_two_names(own, wanted)


def _are_two_names(given: str, accepted: str) -> bool:
    """Whether both words are in use, the answer's often enough to be no misspelling of the accepted one."""
    from wordfreq import zipf_frequency  # only here: it takes a quarter of a second

    return (
        zipf_frequency(given, "en") >= _COMMON
        and zipf_frequency(accepted, "en") >= _IN_USE
    )


def _is_acronym(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether a word consists of the others' initials and numerals: "NBA", also without "of" and "the"; "WWII"."""
    letters = "".join(short)
    if len(short) > 1 or len(letters) < _SHORTEST_ACRONYM or not letters[0].isalpha():
        return False
    initials = [
        word if word[0].isdigit() or _is_regnal(word) else word[0] for word in long
    ]
    minor = ("of", "and", "for", "in", "to")
    major = [
        initial
        for word, initial in zip(long, initials, strict=True)
        if word not in minor
    ]
    return letters in ("".join(initials), "".join(major))


def _plural(core: Sequence[str], form: Sequence[str]) -> bool:
    """Whether only the last word's number differs; for nouns only, since "Roger" isn't "Rogers"."""
    return core[:-1] == form[:-1] and same_noun(core[-1], form[-1])


def _parts(text: str) -> frozenset[tuple[str, ...]]:
    """The things that "A, B and C" lists."""
    listed = (tuple(words(part)) for part in _LIST.split(text))
    return frozenset(part for part in listed if part)


def _contradict(given: Sequence[str], accepted: Sequence[str]) -> bool:
    """Whether ranks or generations differ: "King George" and Prince George, "Jr." and "Sr."."""
    ranks = {given[0], accepted[0]}
    generations = {given[-1], accepted[-1]}
    return len(ranks & WORDS["ranks"]) == 2 or generations == {"jr", "sr"}


def same_name(
    answer: str, core: tuple[str, ...], alias: str, question: ParsedQuestion
) -> bool:
    """Whether the whole answer is another way to write the accepted one."""
    if _contradict(readings(core)[0], alias_readings(alias)[0]):
        return False
    is_noun = alias.strip()[:1].islower()
    cores = dict.fromkeys(
        (*readings(core), _without_honorifics(core), without_classes(core, question))
    )
    for form in _known_forms(alias, question):
        if any(
            own == form
            or (is_noun and _plural(own, form))
            or same_but_spacing(own, form)
            for own in cores
        ):
            return True
        if (
            _misspelt(core, form, question)
            or _is_acronym(core, form)
            or _is_acronym(form, core)
        ):
            return True
    return (
        ("and" in core and _parts(answer) == _parts(alias))
        or _same_place(answer, core, alias)
        or question.chooses(words(alias), core)
        or (
            question.asks_person
            and same_person(answer, core, _PARENTHESES.sub("", alias))
        )
    )


def _known_forms(alias: str, question: ParsedQuestion) -> Iterator[tuple[str, ...]]:
    if question.asks_several and "," in alias:
        return
    for form in forms(alias):
        known = (form, without_titles(form), without_classes(form, question))
        for other in dict.fromkeys(known):
            if sum(map(len, other)) > 2:
                yield other


def _same_place(answer: str, core: tuple[str, ...], alias: str) -> bool:
    """Whether "Madison, WI" is "Madison, Wisconsin", or "Holland" the Netherlands; a code alone says nothing."""
    town, _, given = answer.rpartition(",")
    wanted_town, _, wanted = alias.rpartition(",")
    name = core if core in _STATES else words(given)
    return (
        (bool(town) or len(given) > 2 or name in _STATES)
        and words(town) == words(wanted_town)
        and any(map({name, words(wanted)}.issubset, PLACES))
    )


def is_in_region(answer: str, wanted: tuple[str, ...]) -> bool | None:
    """Whether "Chicago, IL" is in the accepted state or province; None if the answer is no town with another one."""
    if "," not in answer or wanted not in _REGIONS:
        return None
    parts = [words(part) for part in answer.split(",")]
    if wanted in parts or parts[-1] not in _REGIONS:
        return None
    return any(map({wanted, parts[-1]}.issubset, PLACES))
