"""Words, numbers and dates as the grader reads them, and its word lists.

"Henry VIII" is "Henry the Eighth", "Saint Louis" is "St. Louis", "cats" is "cat". A Roman numeral after a name may be
an ordinal ("Henry VIII") or a count ("Rocky IV"), so there are two readings of it.

Numbers are compared exactly ("$5 million" is "5,000,000 dollars"). Units are compared only where both sides give one
that is known here: "12 years" is not "12 months", but "12 players" may be "12 men". Words such as "about" change
nothing.

An answer names an accepted date if it gives everything that the accepted one gives: a full date names its year, a year
does not name a full date, and a span of years ("1939–1945") does not name its ends. Where day and month cannot be told
apart ("07/04/1776"), both readings count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from anchorscope.datasets.text import ARTICLES, located_words, word_tuple

_SHORTENED = {
    "saint": "st",
    "mount": "mt",
    "fort": "ft",
    "doctor": "dr",
    "mister": "mr",
    "professor": "prof",
    "versus": "vs",
    "junior": "jr",
    "senior": "sr",
    "brothers": "bros",
    "corporation": "corp",
    "incorporated": "inc",
    "limited": "ltd",
}
_SMALL_ORDINALS = """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"""
_TENS_ORDINALS = "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth"
_ORDINALS = {word: value for value, word in enumerate(_SMALL_ORDINALS.split(), start=1)}
_ORDINALS |= {word: value for value, word in zip(range(20, 100, 10), _TENS_ORDINALS.split(), strict=True)}
_DIGIT_ORDINAL = re.compile(r"([0-9]{1,9})(?:st|nd|rd|th)")
_TENS_DIGITS = re.compile(r"0*[2-9]0")
_ROMAN = re.compile(r"(?=.)m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_ROMAN_ALONE = ("i", "v", "x")  # "C", "D", "L" and "M" alone are letters: "Vitamin C"

SPACING_LENGTH = 5
"""So many letters are needed before "pingpong" and "ping pong" are taken for the same."""


def ordinal_value(word: str) -> int | None:
    """8 for "eighth" and "8th"; None for any other word."""
    written = _DIGIT_ORDINAL.fullmatch(word)
    return int(written.group(1)) if written else _ORDINALS.get(word)


def roman_value(word: str) -> int | None:
    """8 for "viii"; None where the word is no Roman numeral or a single letter that is hardly one."""
    if (len(word) == 1 and word not in _ROMAN_ALONE) or not _ROMAN.fullmatch(word):
        return None
    values = [_ROMAN_VALUES[letter] for letter in word]
    return sum(-value if value < max(values[index:]) else value for index, value in enumerate(values))


def numerals(own: Sequence[str], roman_ending: str | None = None) -> tuple[str, ...]:
    """The words with ordinals as "8th" and Roman numerals after the first word as numbers with that ending, if any."""
    read: list[str] = []
    for index, word in enumerate(own):
        ordinal, roman = ordinal_value(word), roman_value(word) if index and roman_ending is not None else None
        if ordinal is not None:
            tens = read and ordinal < 10 and _TENS_DIGITS.fullmatch(read[-1])
            if tens:  # "twenty first" was read "20 first"
                ordinal += int(read.pop())
            read.append(f"{ordinal}th")
        else:
            read.append(word if roman is None else f"{roman}{roman_ending}")
    return tuple(read)


def readings(own: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The words as they are, with Roman numerals as ordinals, and with Roman numerals as counts; no repeats at the end.

    Two texts are the same if they are so in the same reading; one with fewer readings is the same in all of them.
    """
    plain = tuple(map(_SHORTENED.get, own, own))
    if not any(map(_may_be_numeral, plain)):
        return (plain,)
    ordinals, counts = numerals(plain, "th"), numerals(plain, "")
    return (plain,) if plain == ordinals == counts else (plain, ordinals, counts)


@lru_cache(maxsize=1 << 16)  # accepted answers have most words in common
def _may_be_numeral(word: str) -> bool:
    return ordinal_value(word) is not None or roman_value(word) is not None


@lru_cache(maxsize=1 << 16)
def is_read_as_written(word: str) -> bool:
    """Whether a text that begins with this word does so in every reading."""
    return word.isalpha() and word not in _SHORTENED and word not in _ORDINALS


@lru_cache(maxsize=1 << 16)  # an accepted answer is read once for every question that accepts it
def alias_readings(alias: str) -> tuple[tuple[str, ...], ...]:
    """The readings of an accepted answer's words, without articles."""
    return readings(word_tuple(alias))


def singular(word: str) -> str:
    """A plural's singular by the regular rules; any other word stays."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def same_noun(one: str, other: str) -> bool:
    """Whether two words are one noun, in whichever number."""
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) > 2 and (long in (f"{short}s", f"{short}es") or singular(long) == short))


def same_but_spacing(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two texts differ only in where words are joined: "ping pong" and "pingpong", not "19 84" and "1984"."""
    joined = "".join(one)
    return len(joined) >= SPACING_LENGTH and joined.isalpha() and joined == "".join(other)


def stands_in(needle: Sequence[str], haystack: Sequence[str]) -> bool:
    """Whether the words of `needle` stand together in `haystack`."""
    size = len(needle)
    return any(tuple(haystack[index : index + size]) == tuple(needle) for index in range(len(haystack) - size + 1))


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted((tuple(phrase.split()) for phrase in text.split("|")), key=len, reverse=True))


OPENINGS = _phrases(
    """it is|it was|its|this is|that is|that was|answer is|correct answer is|answer|i think|i believe|i guess|probably|
    i would say|perhaps|maybe|most likely|he is|he was|she is|she was|they are|they were|there are|there were|there is|
    his name is|his name was|her name is|her name was|name is|is|was|are|were|called|named|known as|also known as|in|at|
    on|from|by|to|of course|yes|sure|well|definitely|certainly|simply|just|either|but|im not sure|im not certain"""
)
"""What an answer may begin with before it says anything."""
CLOSINGS = _phrases(
    """i think|i believe|i guess|probably|perhaps|maybe|of course|most likely|for sure|is answer|is correct|
    is correct answer"""
)

NEGATIONS = _listed(
    "not never isnt wasnt arent werent cannot cant dont doesnt didnt wont except unlike neither nor without"
)
"""Words that deny what follows them."""
NO_NEGATION_BEFORE = _listed("sure certain only just necessarily")
"""Words that make a hedge of the negation before them: "not sure", "not only"."""
NEGATION_ENDS = _listed("but rather instead although though however its it")
"""Words after which an earlier negation speaks no more."""
YES = _listed("yes yeah yep yup true correct")
NO = _listed("no nope false incorrect")
AFTER_POLAR = _listed("it they he she there both i this that these those we you because not the a an")
"""Words that may follow yes or no without a comma; any other makes a name of them ("No Doubt")."""

TITLES = _listed(
    """sir dame lord lady dr prof mr mrs ms miss president king queen prince princess emperor empress pope st captain
    capt general gen colonel col major lieutenant lt admiral sergeant senator rev reverend cardinal archbishop bishop
    baron baroness count countess duke duchess chancellor judge justice tsar czar commander"""
)
SUFFIXES = _listed("jr sr esq phd md obe mbe cbe rn")
"""What may follow a name without being a part of it."""
PARTICLES = _listed("de da di du del della van von der den la le el al bin ibn ben dos das ter y e")
"""Words in lower case that a person's name may hold."""
NOT_IN_A_PERSON = _listed("of and the in for on at to with")
"""Words that make a name something else than first names and a surname."""
PREPOSITIONS = PARTICLES | _listed("as of in by from at on to and the for with or near under over into a an vs but")
"""Words in lower case after which a name is a part of something else: "Sean Bean as Ned Stark"."""
CLASSES = _listed(
    """river lake mountain sea ocean desert island islands isle county province district region state kingdom republic
    empire dynasty language war battle prize award university college school team band series party company street road
    avenue bridge castle palace cathedral church airport station magazine newspaper club fc family treaty bay gulf park
    theatre theater stadium hotel museum order age era period century act day festival game show film movie novel book
    song album opera musical play poem painting planet constellation colour color sign syndrome disease bone gland
    acid"""
)
"""Kinds of things that a name need not repeat where the question says them; no "city": Mexico City is not Mexico."""
ALWAYS_CLASSES = _listed("film movie music church religion color colour")
"""Kinds of things that a name need not say at all: "horror" for "horror film"."""
BEFORE_OF = _listed("city republic kingdom state")
"""What may be left out before "of"."""

PERSONS = _listed(
    """actor actress adventurer architect artist astronaut astronomer athlete author aviator baron biologist boxer
    brother captain cartoonist ceo champion character chef chemist child coach comedian commander composer conductor
    count creator cricketer critic dancer daughter designer detective director discoverer doctor driver drummer duke
    earl economist editor emperor engineer explorer father figure filmmaker footballer founder general god goddess
    golfer governor guitarist hero historian host husband inventor jockey journalist judge king lawyer leader man
    mathematician mayor member minister model monarch mother musician novelist officer owner painter person philosopher
    photographer physicist pilot player playwright poet politician pope president prince princess producer queen rapper
    ruler saint scientist screenwriter sculptor senator singer sister son songwriter star swimmer teacher villain wife
    winner woman writer"""
)
OPENERS = _listed("who whom whose which what when where why how in on at of is was are were the a an name")
"""Words that have a capital letter only because the question begins with them."""
FILLERS = _listed(
    """it is was are were there has have had they he she i think believe its of in total old age aged years year all
    people number answer"""
)
"""Words that may stand beside a number and say nothing."""
APPROXIMATIONS = _listed(
    """about around approximately approx roughly nearly almost over some exactly only just estimated circa c ca more
    than at least up to"""
)
"""Words before a number that leave it the number that it is."""

_UNIT_NAMES = """second seconds sec secs s|minute minutes min mins|hour hours hr hrs h|day days|week weeks|month months|
    year years yr yrs|decade decades|century centuries|millimeter millimeters millimetre millimetres mm|
    centimeter centimeters centimetre centimetres cm|meter meters metre metres m|
    kilometer kilometers kilometre kilometres km kms|inch inches in|foot feet ft|yard yards yd yds|mile miles mi|
    gram grams g|kilogram kilograms kilo kilos kg kgs|ounce ounces oz|pound pounds lb lbs|ton tons tonne tonnes|
    liter liters litre litres l|gallon gallons|percent|dollar dollars usd|euro euros eur|yen jpy|rupee rupees|
    cent cents|celsius centigrade|fahrenheit|kelvin|hertz hz|watt watts|volt volts|mph|kph|acre acres|
    hectare hectares|degree degrees"""
UNITS = {name: group.split()[0] for group in _UNIT_NAMES.split("|") for name in group.split()}
UNIT_SYMBOLS = {"%": "percent", "$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "°": "degree"}


LONGEST_COUNTED = 2
"""An accepted number may be followed by so many words that are no unit: "12 players", "9 full seasons"."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NEGATIVE = re.compile(r"(?:(?<![\w.)])[-−–]\s?|\bminus\s+)(?=[0-9.])", re.I)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: Decimal
    unit: str | None
    """The known unit beside it; None where there is none."""


@dataclass(frozen=True)
class Numbers:
    """What a text says in numbers."""

    quantities: tuple[Quantity, ...]
    others: tuple[str, ...]
    """The words that are neither a number, nor a known unit beside one, nor an approximation."""
    leads: bool
    """Whether a number comes first and only lower-case words after it: "12 players", but not "Apollo 11"."""


def numbers_in(text: str) -> Numbers:
    """The numbers of a text."""
    negative = bool(_NEGATIVE.search(text))
    for symbol, name in UNIT_SYMBOLS.items():
        text = text.replace(symbol, f" {name} ")
    text = re.sub(r"\bper\s+cent\b", "percent", text, flags=re.I)
    text = re.sub(r"(?<=[0-9])(?=(?:km|cm|mm|m|kg|g|ft|in|mi|lbs?|hrs?|mph|kph)\b)", " ", text, flags=re.I)
    located = [word for word in located_words(text) if word.text not in ARTICLES]
    words = [word.text for word in located]
    beside: set[int] = set()
    found: list[Quantity] = []
    for index, word in enumerate(words):
        if _NUMBER.fullmatch(word):
            unit_at = _unit_beside(words, index)
            beside.update((index, *unit_at))
            value = Decimal(word).normalize()
            found.append(Quantity(-value if negative else value, UNITS[words[unit_at[0]]] if unit_at else None))
    other_places = [index for index, word in enumerate(words) if index not in beside and word not in APPROXIMATIONS]
    leads = bool(found) and all(index > min(beside) and text[located[index].start].islower() for index in other_places)
    return Numbers(tuple(found), tuple(words[index] for index in other_places), leads)


def _unit_beside(words: Sequence[str], index: int) -> list[int]:
    """The places of the units beside the number, the telling one first: "5 percent", "$5", "20 degrees Celsius"."""
    after = [place for place in (index + 1, index + 2) if place < len(words) and words[place] in UNITS]
    if after and after[0] == index + 1:
        return after[::-1] if len(after) == 2 and words[after[0]].startswith("degree") else after[:1]
    return [index - 1] if index and words[index - 1] in ("dollar", "euro", "pound", "yen", "rupee") else []


def compare(answer: Numbers, accepted: Numbers, known_words: frozenset[str]) -> bool | None:
    """Whether the answer gives the accepted number; None where words must decide.

    The accepted answer must be one number with at most two words after it ("12 players"). The answer must hold no other
    number, and no further word than the accepted one's own and `known_words` (those of the question, say).
    """
    if len(accepted.quantities) != 1 or len(answer.quantities) != 1:
        return None
    given, wanted = answer.quantities[0], accepted.quantities[0]
    if abs(given.value) != abs(wanted.value):
        return None
    units_known = given.unit is not None and wanted.unit is not None
    if given.value != wanted.value or (units_known and given.unit != wanted.unit):
        return False
    if not accepted.leads or len(accepted.others) > LONGEST_COUNTED:
        return None
    return True if known_words.union(accepted.others).issuperset(answer.others) else None


_MONTH_NAMES = "january february march april may june july august september october november december"
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), start=1)}
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9}
_BEFORE_CHRIST = ("bc", "bce")
_ERAS = (*_BEFORE_CHRIST, "ad", "ce")
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun"
_AROUND = frozenset(f"{_WEEKDAYS} of in on the at a year by c ca circa around about utc gmt date day".split())
_ISO = re.compile(r"(?<![\w-])([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![\w-])")
_NUMERIC = re.compile(r"(?<![\w/.-])([0-9]{1,2})([/.-])([0-9]{1,2})\2([0-9]{4})(?![\w/-])")

_YEARS = re.compile(r"(?<![\w-])([0-9]{4})\s*(?:-|–|—|to|until|till|and)\s*([0-9]{4})(?![\w-])", re.I)


@dataclass(frozen=True)
class Date:
    """A date as far as it is given."""

    year: int | None = None
    """Negative before Christ."""
    month: int | None = None
    day: int | None = None

    def gives(self, wanted: "Date") -> bool:
        """Whether everything that `wanted` gives is given here, and the same."""
        pairs = ((wanted.year, self.year), (wanted.month, self.month), (wanted.day, self.day))
        return all(one is None or one == other for one, other in pairs)


def _written_out(text: str) -> list[str]:
    """The text with numeric dates in words, once for every way to read them."""
    names = _MONTH_NAMES.split()

    def spelled(year: str, month: str, day: str, otherwise: str) -> str:
        return f"{int(day)} {names[int(month) - 1]} {year}" if 1 <= int(month) <= 12 else otherwise

    text = _ISO.sub(lambda m: spelled(m[1], m[2], m[3], m[0]), text)
    day_first = _NUMERIC.sub(lambda m: spelled(m[4], m[3], m[1], m[0]), text)
    month_first = _NUMERIC.sub(lambda m: spelled(m[4], m[1], m[3], m[0]), text)
    return [text] if day_first == text == month_first else [day_first, month_first]


def _day(word: str) -> int | None:
    value = int(word) if word.isascii() and word.isdigit() and len(word) <= 2 else ordinal_value(word)
    return value if value is not None and 1 <= value <= 31 else None


def _year(words: Sequence[str], index: int) -> tuple[int | None, int]:
    """The year that begins at word `index` and the index after it: "1776", "44 BC", "AD 79"."""
    before = index < len(words) and words[index] in ("ad", "ce")
    start = index + 1 if before else index
    if start >= len(words) or not (words[start].isascii() and words[start].isdigit()) or len(words[start]) > 4:
        return None, index
    era = words[start + 1] if start + 1 < len(words) and words[start + 1] in _ERAS else ""
    if not (era or before) and len(words[start]) != 4:
        return None, index
    value = int(words[start])
    return -value if era in _BEFORE_CHRIST else value, start + (2 if era else 1)


def _dates(words: Sequence[str]) -> Iterator[tuple[Date, int, int]]:
    """Every date in the words with its place [first, after)."""
    index = 0
    while index < len(words):
        month, day, after = MONTHS.get(words[index]), None, index + 1
        if month is not None and after < len(words) and _day(words[after]) is not None:
            day, after = _day(words[after]), after + 1
        elif month is None and (day := _day(words[index])) is not None:
            while after < len(words) and words[after] == "of":
                after += 1
            month = MONTHS.get(words[after]) if after < len(words) else None
            after += 1
        year, end = _year(words, after if month else index)
        if month or year is not None:
            yield Date(year, month, day if month else None), index, end if year is not None else after
            index = end if year is not None else after
        else:
            index += 1


def _plain_words(text: str) -> list[str]:
    return list(numerals([word.text for word in located_words(text) if word.text not in ARTICLES]))


def dates_in(text: str) -> list[Date]:
    """Every date that the text may be read to give."""
    return [date for reading in _written_out(text) for date, _, _ in _dates(_plain_words(reading))]


def as_date(text: str) -> list[Date]:
    """The readings of a text that is one date and nothing else; none if it says more."""
    whole = []
    for reading in _written_out(text):
        words = _plain_words(reading)
        found = list(_dates(words))
        if len(found) == 1 and all(word in _AROUND for word in (*words[: found[0][1]], *words[found[0][2] :])):
            whole.append(found[0][0])
    return whole


def only_in_a_span(text: str, date: Date) -> bool:
    """Whether the text gives a year, but only as an end of a span of years."""
    if date.month is not None or not any(one.gives(date) for one in dates_in(text)):
        return False
    return not any(one.gives(date) for one in dates_in(_YEARS.sub(" ", text)))
