"""Names that differ and still name the same: "Einstein", "J. Tolkien", "the Nile" for "River Nile", "Vienna" for
"Vienna, Austria".

These rules compare the whole answer, never a part of it, and never one that only repeats words of the question. How
else an accepted answer may be written follows from itself (`forms`); what may be left out depends on the question.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from anchorscope.answers.grade_question import ParsedQuestion
from anchorscope.answers.grade_words import (
    ALWAYS_CLASSES,
    BEFORE_OF,
    CLASSES,
    NOT_IN_A_PERSON,
    PARTICLES,
    PREPOSITIONS,
    SUFFIXES,
    TITLES,
    readings,
    roman_value,
    same_but_spacing,
    same_noun,
    singular,
)
from anchorscope.datasets.text import located_words, words

_PARENTHESES = re.compile(r"\s*\(([^()]*)\)")
_LIST = re.compile(r"[,;&]|\band\b", re.I)
_DESCRIBED = re.compile(r"[^,;]*?\b([a-z]+) (?=[A-Z])(?=[^,;]*?[A-Z][^,;]*?[A-Z])((?:[A-Z][^\s,;]*(?: |$))+)$")
"""A common noun before a name of several words: "Polish astronomer Nicolaus Copernicus"."""
_VOWELS = frozenset("aeiouy")
_LONGEST_NAME = 5
_SHORTEST_SURNAME = 3
_HIGHEST_REGNAL = 40
"""Above it, what reads as a Roman numeral is a surname: "Dix" is 509."""
_SHORTEST_ACRONYM = 3
_SHORTEST_MISSPELT = 6


@lru_cache(maxsize=1 << 14)
def forms(alias: str) -> tuple[tuple[str, ...], ...]:
    """Ways to write an accepted answer by what it says itself, each as words.

    Without parentheses ("Mercury (planet)"), with what they offer instead ("Moirai (or Parcae)"), each side of an "or",
    what comes before "and others" or before a part that was played, the name after a description ("Polish astronomer
    Nicolaus Copernicus"), the part before the only comma ("Vienna, Austria"), and "Einstein, Albert" turned round.
    """
    texts = [_PARENTHESES.sub("", alias)]
    texts += [inside[3:] for inside in _PARENTHESES.findall(alias) if inside.lower().startswith("or ")]
    bare = texts[0]
    if len(bare.split()) > _LONGEST_NAME:  # an accepted answer that is a sentence: "Emma is a novel in three volumes"
        texts.append(re.split(r"\s(?:is|was|are|were)\s", bare)[0])
    if re.search(r"\bor\b|\band other", bare):
        texts += re.split(r"[;,]?\s*\bor\b,?\s*|\s*\band other", bare)
    texts += re.split(r"(?<=\w) as (?=[A-Z])", bare)[:1]  # "Sean Bean as Ned Stark"
    described = _DESCRIBED.match(bare)
    if described and described[1] not in PREPOSITIONS:
        texts.append(described[2])
    head, comma, tail = bare.partition(",")
    if comma and "," not in tail and not re.search(r"[0-9;&]|\band\b", bare):
        texts += [head, f"{tail} {head}"]
    found = [one for text in texts for one in readings(words(text))]
    return tuple(one for one in dict.fromkeys(found) if sum(map(len, one)) > 2)


def without_titles(name: Sequence[str]) -> tuple[str, ...]:
    """A name without honorifics before it and degrees after it, but never down to nothing."""
    kept = tuple(name)
    while len(kept) > 1 and kept[0] in TITLES:
        kept = kept[1:]
    while len(kept) > 1 and kept[-1] in SUFFIXES:
        kept = kept[:-1]
    return kept


def without_classes(name: Sequence[str], question: ParsedQuestion | None) -> tuple[str, ...]:
    """A name without the kind of thing that it names, where the question says it already: "River", "Battle of"."""
    droppable = ALWAYS_CLASSES if question is None else ALWAYS_CLASSES | (CLASSES & question.words)
    if question is not None and "mountain" in question.words:
        droppable |= {"mt"}
    kept = tuple(name)
    if len(kept) > 2 and kept[1] == "of" and kept[0] in droppable | BEFORE_OF:
        kept = kept[2:]
    elif len(kept) > 1 and kept[0] in droppable:
        kept = kept[1:]
    elif len(kept) > 1 and singular(kept[-1]) in droppable:
        kept = kept[:-1]
    return kept


def _initials(text: str) -> frozenset[str]:
    """The words of a text that are initials: "J", "J.R.R.", "JRR" (but not "LEE" where all is in capitals)."""
    shouted = not any(character.islower() for character in text)
    found = set()
    for word in located_words(text):
        raw = text[word.start : word.end]
        capitals = not shouted and not any(character.islower() for character in raw)
        if len(word.text) <= 3 and ("." in raw or capitals or _VOWELS.isdisjoint(word.text)):
            found.add(word.text)
    return frozenset(found)


def _spread(given: Sequence[str], initials: frozenset[str]) -> list[str]:
    return [part for name in given for part in (name if name in initials else (name,))]


def _compatible(one: str, other: str) -> bool:
    return one == other or (1 in (len(one), len(other)) and one[0] == other[0])


def same_person(answer: str, core: Sequence[str], alias: str) -> bool:
    """Whether the answer's name is the accepted person's: the surname, or fitting first names and the surname."""
    accepted = without_titles(readings(words(alias))[0])
    given = without_titles(core)
    if len(accepted) < 2 or given[-1] != accepted[-1] or not _looks_like_a_person(alias):
        return False
    if len(given[-1]) < _SHORTEST_SURNAME or (roman_value(given[-1]) or _HIGHEST_REGNAL) < _HIGHEST_REGNAL:
        return False
    if len(given) < len(accepted) and accepted[-len(given) :] == given:
        return True
    one = _spread(accepted[:-1], _initials(alias))
    # The answer may describe before it names: "English author Mary Blunt".
    initials = _initials(answer)
    others = [_spread(given[index:-1], initials) for index in range(len(given) - 1)]
    return any(_first_names_fit(one, other) for other in others)


def _first_names_fit(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the answer's first names (`other`) fit; it may leave the middle ones out, but not add any.

    Michael B. Jackson is not Michael Jackson.
    """
    return len(other) in (1, len(one)) and all(map(_compatible, one, other))


def _looks_like_a_person(alias: str) -> bool:
    """Two to six words of letters, written as a name."""
    located = located_words(alias, numbers=False)
    return 2 <= len(located) <= 6 and all(
        word.text.isalpha()
        and word.text not in NOT_IN_A_PERSON
        and (alias[word.start].isupper() or word.text in PARTICLES)
        for word in located
    )


def _misspelt(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether names of several words differ in one letter of one long word: "Hans Christian Anderson"."""
    differing = [pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]]
    if len(one) != len(other) or len(one) < 2 or len(differing) != 1:
        return False
    short, long = sorted(differing[0], key=len)
    if len(short) < _SHORTEST_MISSPELT or len(long) - len(short) > 1 or not (short + long).isalpha():
        return False
    index = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    swapped = short[:index] + short[index + 1 : index + 2] + short[index : index + 1] + short[index + 2 :]
    return short[index:] == long[index + 1 :] or short[index + 1 :] == long[index + 1 :] or swapped == long


def _is_acronym(short: str, long: Sequence[str]) -> bool:
    """Whether a word is made of the first letters of the others: "NBA", also without "of" and "the"."""
    if len(short) < _SHORTEST_ACRONYM or not short.isalpha():
        return False
    minor = ("of", "and", "for", "in", "to")
    return short in ("".join(w[0] for w in long), "".join(w[0] for w in long if w not in minor))


def _plural(core: Sequence[str], form: Sequence[str]) -> bool:
    """Whether only the last word's number differs; asked for nouns only, since a name has none ("Roger", "Rogers")."""
    return core[:-1] == form[:-1] and same_noun(core[-1], form[-1])


def _parts(text: str) -> frozenset[tuple[str, ...]]:
    """The things that "A, B and C" lists."""
    listed = (tuple(words(part)) for part in _LIST.split(text))
    return frozenset(part for part in listed if part)


def same_name(answer: str, core: tuple[str, ...], alias: str, question: ParsedQuestion | None) -> bool:
    """Whether the whole answer is another way to write the accepted one."""
    is_noun = alias.strip()[:1].islower()
    cores = list(dict.fromkeys((*readings(core), without_titles(core), without_classes(core, question))))
    for form in _known_forms(alias, question):
        if any(one == form or (is_noun and _plural(one, form)) or same_but_spacing(one, form) for one in cores):
            return True
        if _misspelt(core, form):
            return True
        if (len(core) == 1 and _is_acronym(core[0], form)) or (len(form) == 1 and _is_acronym(form[0], core)):
            return True
    if "and" in core and _parts(answer) == _parts(alias):
        return True
    if _same_place(answer, alias) or (question is not None and question.chooses(words(alias), core)):
        return True
    return question is not None and question.asks_person and same_person(answer, core, _PARENTHESES.sub("", alias))


def _known_forms(alias: str, question: ParsedQuestion | None) -> Iterator[tuple[str, ...]]:
    for form in forms(alias):
        if question is not None and question.asks_several and "," in alias:
            continue
        yield form
        untitled, unclassed = without_titles(form), without_classes(form, question)
        yield from (other for other in (untitled, unclassed) if other != form and sum(map(len, other)) > 2)


def _same_place(answer: str, alias: str) -> bool:
    """Whether "Madison, WI" is "Madison, Wisconsin"."""
    one, other = ([words(part) for part in text.split(",")] for text in (answer, alias))
    if len(one) != 2 or len(other) != 2 or one[0] != other[0] or not one[1] or not other[1]:
        return False
    short, long = sorted(("".join(one[1]), "".join(other[1])), key=len)
    letters = iter(long)
    return len(short) == 2 and short[0] == long[0] and all(letter in letters for letter in short)
