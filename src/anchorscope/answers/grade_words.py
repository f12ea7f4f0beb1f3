"""Words as the grader takes them: its word lists, and words that a reader takes for the same.

"Henry VIII" and "Henry the Eighth", "Saint Louis" and "St. Louis", "cat" and "cats". The words come from
`datasets.text`; here they get the further readings that only a grader wants. A Roman numeral after a name may be an
ordinal ("Henry VIII") or a count ("Rocky IV", "World War II"), so there are two readings of it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from anchorscope.datasets.text import word_tuple

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
    """Phrases between bars, the longest first."""
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
"""What it may end with."""

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
"""Honorifics before a name."""
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
"""Nouns by which a question asks for a person."""
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
"""Units of measure by all their names."""
UNIT_SYMBOLS = {"%": "percent", "$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "°": "degree"}
"""Symbols that name a unit."""
