"""What counts as the same words."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.datasets.text import located_words, normalise, without_articles, words

SAME = [
    ("Bogotá", "bogota"),
    ("BOGOTA\u0301", "bogota"),  # the accent as a character of its own
    ("Łódź", "lodz"),
    ("Straße", "STRASSE"),
    ("Ærø", "aero"),
    ("Þór Đinh Guðrún", "thor dinh gudrun"),
    ("Diyarbakır", "DİYARBAKIR"),
    ("ﬁne", "fine"),
    ("H₂O", "h2o"),
    ("٣٤", "34"),
    ("zero\u200bwidth", "zerowidth"),
    ("O'Brien", "obrien"),
    ("'quoted'", "quoted"),
    ("Rhys-Davies", "rhys davies"),
    ("U.S.A.", "USA"),
    ("Washington, D. C.", "Washington DC"),
    ("J.R.R. Tolkien", "J. R. R. Tolkien"),
    ("Simon & Garfunkel", "Simon and Garfunkel"),
    ("The Lord of the Rings", "lord of rings"),
    ("an apple a day", "apple day"),
    ("twenty-one", "21"),
    ("one thousand nine hundred eighty-four", "1984"),
    ("three million two hundred thousand", "3,200,000"),
    ("3.5 million", "3500000"),
    ("zero", "0"),
    ("12,345,678", "12345678"),
    ("  white\t\nspace ", "white space"),
    ("581 ( second edition )", "581 (second edition)"),
]

DIFFERENT = [
    ("Vitamin A", "Vitamin"),
    ("The The", ""),
    ("a", ""),
    ("3.5", "35"),
    ("1,23", "123"),
    ("1,234,56", "123456"),
    ("first", "1"),
    ("Frances", "France"),
    ("0.5 hundred", "0.5"),
    ("が", "か"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_words(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)
    assert normalise(one) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_words(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


NUMBERISH = "a the zero one nine ten twenty ninety hundred thousand million and 5 0 1,000 150.5 2.5 x"


@given(st.lists(st.sampled_from(NUMBERISH.split())))
def test_numbers_normalise_twice_to_the_same(parts: list[str]) -> None:
    once = normalise(" ".join(parts))
    assert normalise(once) == once
    assert not {"one", "ten", "ninety", "hundred", "million"} & set(once.split())


@given(st.integers(0, 999_999))
def test_a_number_in_words_is_the_number(value: int) -> None:
    assert normalise(spoken(value)) == str(value)
    assert normalise(f"{value:,}") == str(value)


def spoken(value: int) -> str:
    """An independent, recursive spelling of a number."""
    small = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    units = [*small.split(), "seventeen", "eighteen", "nineteen"]
    tens = [
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "seventy",
        "eighty",
        "ninety",
    ]
    if value < 20:
        return units[value]
    if value < 100:
        return tens[value // 10 - 2] + (f"-{units[value % 10]}" if value % 10 else "")
    size, name, link = (
        (100, "hundred", " and ") if value < 1000 else (1000, "thousand", " ")
    )
    return f"{spoken(value // size)} {name}" + (
        f"{link}{spoken(value % size)}" if value % size else ""
    )


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_composed_and_decomposed_accents_are_the_same(text: str) -> None:
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(
        unicodedata.normalize("NFC", text)
    )


@given(st.text())
def test_located_words_lie_in_order_and_read_the_same_alone(text: str) -> None:
    found = located_words(text, numbers=False)
    for word in found:
        assert 0 <= word.start < word.end <= len(text)
        assert word.text in [
            part.text
            for part in located_words(text[word.start : word.end], numbers=False)
        ]
    # two words share a character only where one character is two words ("½")
    for one, other in pairwise(found):
        assert one.end <= other.start or len(words(text[other.start])) > 1


@given(
    st.text(
        st.one_of(
            st.sampled_from("aB1 .,&'’″…½"), st.characters(exclude_categories=["Cs"])
        )
    )
)
def test_words_with_and_without_their_places_are_the_same(text: str) -> None:
    assert words(text) == without_articles([word.text for word in located_words(text)])


@pytest.mark.parametrize(
    "text", ["Ana's hat", "Aná's hat", "Ana\u0301’s hat", "Ana″s hat"]
)
def test_an_owner_ends_where_its_apostrophe_begins(text: str) -> None:
    owner, possessive, hat = located_words(text, split_possessive=True)
    mark = text.index("s hat") - 1
    assert (owner.text, possessive.text, hat.text) == ("ana", "'s", "hat")
    assert (owner.end, possessive.start, possessive.end) == (mark, mark, mark + 2)
