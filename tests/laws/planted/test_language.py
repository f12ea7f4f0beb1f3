"""The made-up language: balanced tables, words that no rule for English knows, wordings in which E_Q can be found."""

from collections import Counter

from anchorscope.datasets.text import words
from anchorscope.spans.words import EMPTY_WORDS
from planted_items import ALWAYS, NEUTRAL, NEVER, WORDINGS, the_language

LANGUAGE = the_language()


def test_every_fact_has_one_object_and_every_object_as_many_facts() -> None:
    assert len(LANGUAGE.facts) == len(LANGUAGE.subjects) * len(LANGUAGE.relations)
    for relation in LANGUAGE.relations:
        counts = Counter(
            LANGUAGE.facts[subject, relation] for subject in LANGUAGE.subjects
        )
        assert set(counts.values()) == {len(LANGUAGE.subjects) // len(LANGUAGE.objects)}
    # on which the balance of wordings rests
    assert len(LANGUAGE.facts) % len(WORDINGS) == 0


def test_every_phrase_word_is_in_as_many_phrases_of_each_kind() -> None:
    kinds = (NEUTRAL, ALWAYS, NEVER)
    assert len({phrase for kind in kinds for phrase in LANGUAGE.phrases[kind]}) == 144
    for place in (0, 1):
        counts = [
            Counter(phrase.split()[place] for phrase in LANGUAGE.phrases[kind])
            for kind in kinds
        ]
        assert counts[0] == counts[1] == counts[2]
        assert set(counts[0].values()) == {4}


def test_no_word_means_two_things_or_anything_in_english() -> None:
    own = LANGUAGE.words()
    assert len(own) == len({word.lower() for word in own})
    invented = [
        *LANGUAGE.subjects,
        *LANGUAGE.relations,
        *LANGUAGE.objects,
        *LANGUAGE.fillers,
    ]
    invented += [
        word
        for phrases in LANGUAGE.phrases.values()
        for phrase in phrases
        for word in phrase.split()
    ]
    for word in invented:
        assert words(word) == (word.lower(),)  # "seven" would be 7
        assert word.lower() not in EMPTY_WORDS


def test_every_wording_has_words_before_and_behind_those_that_are_cut() -> None:
    for wording in WORDINGS:
        assert words(wording[: wording.index("{")])
        assert wording[wording.rindex("}") + 1 :].strip("?")
