"""Subject and property of a question by rules alone."""

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.spans.question_spans import PlainReading, read_plain_text
from anchorscope.spans.words import BARE_WORDS, Span, is_clear, words_as_written


def said(text: str, spans: tuple[Span, ...]) -> list[str]:
    return [text[start:end] for start, end in spans]


NAMES = [
    ("Who was the director of A Man for All Seasons?", ["A Man for All Seasons"], ["director"]),
    ("Who wrote The Lord of the Rings?", ["The Lord of the Rings"], ["wrote"]),
    ("What is Juan de la Cruz's occupation?", ["Juan de la Cruz"], ["occupation"]),
    ("Leonardo da Vinci was born in which town?", ["Leonardo da Vinci"], ["born", "town"]),
    ("In what city was Mary-Ann O'Neil born?", ["Mary-Ann O'Neil"], ["city", "born"]),
    ("What sport does J. P. Hale play?", ["J. P. Hale"], ["sport", "play"]),
    ("What is Lima the capital of?", ["Lima"], ["capital"]),
    ("What genre is Who's That Girl?", ["Who's That Girl"], ["genre"]),
    ("What genre is What?", ["What"], ["genre"]),
    ("What genre is It?", ["It"], ["genre"]),
    ("What genre is A?", ["A"], ["genre"]),
    ("What genre is The Who?", ["The Who"], ["genre"]),
    ("Where were The Who formed?", ["The Who"], ["formed"]),
    ("What genre is 東京物語?", ["東京物語"], ["genre"]),
    ("Who composed I Will Follow?", ["I Will Follow"], ["composed"]),
    ("What did I say about Lima?", ["Lima"], ["say"]),
    ("Did Bell in Boston meet Watson?", ["Bell", "Boston", "Watson"], ["meet"]),
    ("Are both Lima and Quito capitals?", ["Lima", "Quito"], ["capitals"]),
    ("Which city is older, Lima or Quito?", ["Lima", "Quito"], ["city", "older"]),
    ('Who sang "let it be" in 1970?', ["let it be", "1970"], ["sang"]),
    ("Who wrote 'Emma's Year' in May 1920?", ["Emma's Year", "May 1920"], ["wrote"]),
    ("Dr. Watson met Holmes. Who wrote it?", ["Dr. Watson", "Holmes"], ["met", "wrote"]),
    ("Who lives in St. Louis?", ["St. Louis"], ["lives"]),
    ("NASA was founded by whom?", ["NASA"], ["founded"]),
    ("What is the name of the dog in Peter Pan?", ["Peter Pan"], ["dog"]),
    ("What kind of animal is Bambi?", ["Bambi"], ["animal"]),
]


@pytest.mark.parametrize(("text", "subject", "asked"), NAMES)
def test_names_quotations_and_numbers_are_the_subject(text: str, subject: list[str], asked: list[str]) -> None:
    read = read_plain_text(text)
    assert (said(text, read.subject), said(text, read.property_spans)) == (subject, asked)


ORDER = [
    ("what is the largest organ of the human body", ["human", "body"], ["largest", "organ"]),
    ("what is the capital of france", ["france"], ["capital"]),
    ("WHAT IS THE CAPITAL OF FRANCE?", ["FRANCE"], ["CAPITAL"]),
    ("What Is the Capital of France?", ["France"], ["Capital"]),
    ("who wrote the call of the wild", ["call", "wild"], ["wrote"]),
    ("who does juliet love", ["juliet"], ["love"]),
    ("when did the wall go up in berlin", ["wall", "berlin"], ["go"]),
    ("when was the declaration of independence signed", ["declaration", "independence"], ["signed"]),
    ("where is the match being played", ["match"], ["played"]),
    ("when did the club get a new stadium", ["club", "new", "stadium"], ["get"]),
    ("how many seasons of thrones are there", ["thrones"], ["seasons"]),
    ("lima is the capital of which country", ["lima"], ["capital", "country"]),
    ("what is sherlock's brother's name", ["sherlock"], ["brother"]),
    ("what type of animal is an okapi", ["okapi"], ["animal"]),
    ("who was elected on 4 june 1928", ["4 june 1928"], ["elected"]),
    ("who is the president", ["president"], []),
]


@pytest.mark.parametrize(("text", "subject", "asked"), ORDER)
def test_the_order_of_words_decides_where_nothing_stands_out(text: str, subject: list[str], asked: list[str]) -> None:
    read = read_plain_text(text)
    assert (said(text, read.subject), said(text, read.property_spans)) == (subject, asked)


def test_content_is_more_than_subject_and_property() -> None:
    text = "What is the name of the dog in Peter Pan?"
    assert said(text, read_plain_text(text).content) == ["name", "dog", "Peter Pan"]


LIKE_QUESTIONS = st.lists(
    st.sampled_from(
        """who what which when is was did does the a an of in and capital author born sings Lima The Who Émile Zola I's
        'Emma' "let it be" 1970 may okapi, Is sherlock's (Pan) St. Louis? O'Neil über 東京 - name type""".split()  # noqa: SIM905
    ),
    min_size=1,
    max_size=12,
).map(" ".join)


def spans_of(read: PlainReading) -> tuple[Span, ...]:
    return tuple(sorted(read.subject + read.property_spans))


@given(LIKE_QUESTIONS)
def test_question_words_and_articles_stay_out_unless_a_name_holds_them(text: str) -> None:
    words = words_as_written(text)
    for start, end in spans_of(read_plain_text(text)):
        if words and any(word.text not in BARE_WORDS for word in words):
            alone = [word for word in words if (word.start, word.end) == (start, end) and word.text in BARE_WORDS]
            assert all(not text[word.start].islower() for word in alone if not _quoted(text, word.start))


def _quoted(text: str, at: int) -> bool:
    return any(mark in text[:at] for mark in "\"'")


@given(LIKE_QUESTIONS)
def test_a_question_mark_changes_nothing(text: str) -> None:
    assert read_plain_text(text + "?") == read_plain_text(text)


@given(LIKE_QUESTIONS)
def test_composed_and_decomposed_letters_are_read_alike(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    one, other = read_plain_text(composed), read_plain_text(decomposed)
    for part in ("subject", "property_spans", "content"):
        read = said(decomposed, getattr(other, part))
        assert [unicodedata.normalize("NFC", name) for name in read] == said(composed, getattr(one, part))


@given(LIKE_QUESTIONS)
def test_a_text_in_lower_case_has_a_subject_too(text: str) -> None:
    assume(words_as_written(text))
    assert read_plain_text(text.lower()).subject


@given(LIKE_QUESTIONS)
def test_subject_and_property_are_apart(text: str) -> None:
    read = read_plain_text(text)
    assert all(is_clear(*span, read.subject) for span in read.property_spans)
