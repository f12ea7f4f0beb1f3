"""The words follow the verdicts: a verdict that flips turns its sentence, and nothing undecided is claimed."""

from dataclasses import replace

import numpy as np
import pytest
from anchorscope.report.statements.curve_readings import curve_statements
from anchorscope.report.statements.prose import (
    DATASET_PHRASES,
    INTERPRETED,
    KEY_PHRASES,
    NOT_MEASURED,
    ONE_DATASET,
    words,
)
from anchorscope.report.statements.prose_chart import NOISE
from anchorscope.report.statements.share_prose import SHARE_PHRASES
from report_sampled import run_of, sampled, valley, with_draws
from report_shares import World, with_shares
from report_synthetic import LAYERS

from anchorscope.report.statements.all_statements import read

VERDICTS = ("holds", "does not hold", "undecided")
TWO = ("popqa", "triviaqa")
RULES = ("plain", "corrected", "retained")
FINDINGS = {
    datasets: with_shares(sampled(valley(-40, -10), datasets=datasets, rules=RULES), World(random_weights=0.02))
    for datasets in (("atlas",), TWO)
}
OBSERVED = {datasets: read(findings) for datasets, findings in FINDINGS.items()}


def told(findings, observations=None):
    return words(findings, read(findings) if observations is None else observations)


def text_of(section):
    bullets = [f"{point.label}: {point.text}" for part in section.lists for point in part.points]
    return "\n".join((*section.paragraphs, *bullets))


def section(prose, slug):
    (found,) = [one for one in prose.sections if one.slug == f"words-{slug}"]
    return found


def all_text(prose):
    return "\n".join(map(text_of, prose.sections))


def judged(observations, verdict, claim=None, rule=None):
    """The same readings with another verdict, for one claim or for all."""
    return [
        one | {"verdict": verdict}
        if claim is None or (one["assignment"], one["claim"].removeprefix("all_")) == (rule, claim)
        else one
        for one in observations
    ]


def test_all_parts_are_there_in_order():
    prose = told(sampled(valley(-40, -10)))
    assert [one.title for one in prose.sections] == [
        "Overview", "Components", "Curve by curve", "Key observations", "Interpretation",
    ]  # fmt: skip
    assert len({one.slug for one in prose.sections}) == 5


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("key", KEY_PHRASES, ids=lambda key: f"{key[1]}-{key[2]}")
def test_a_key_observation_says_what_its_verdict_says(key, verdict, datasets):
    findings = FINDINGS[datasets]
    label, rule, claim = key
    found = judged(OBSERVED[datasets], verdict, claim, rule)
    (bullets,) = section(words(findings, found), "observations").lists
    (point,) = [one for one in bullets.points if one.label == label]
    assert point.text.startswith(KEY_PHRASES[key].of(verdict))
    for other in set(VERDICTS) - {verdict}:
        assert not point.text.startswith(KEY_PHRASES[key].of(other) + " (")


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("key", SHARE_PHRASES, ids=lambda key: key[1])
def test_so_does_one_about_the_question_share(key, verdict, datasets):
    label, claim = key
    found = judged(OBSERVED[datasets], verdict, claim)
    (bullets,) = section(words(FINDINGS[datasets], found), "observations").lists
    (point,) = [one for one in bullets.points if one.label == label]
    assert [other for other in VERDICTS if point.text.startswith(f"{SHARE_PHRASES[key].of(other)} (")] == [verdict]


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("key", DATASET_PHRASES, ids=lambda key: key[2])
def test_so_does_one_about_the_datasets(key, verdict):
    label, rule, claim = key
    found = judged(OBSERVED[TWO], verdict, claim, rule)
    (bullets,) = section(words(FINDINGS[TWO], found), "observations").lists
    (point,) = [one for one in bullets.points if one.label == label]
    assert point.text.startswith(DATASET_PHRASES[key].of(verdict))


def test_the_lowest_dataset_is_named_once_and_only_where_it_is_known():
    def said(noise):
        shapes = {(TWO[0], "plain", "Q-Anchored"): valley(-40, -10), (TWO[1], "plain", "Q-Anchored"): valley(-60, -10)}
        (bullets,) = section(told(with_draws(run_of(TWO), shapes, noise)), "observations").lists
        return next(point.text for point in bullets.points if point.label == "Lowest dataset")

    assert said(0.5).startswith("Of the Q-Anchored curves, that of TriviaQA lies lowest in the mean from layer 10 on (")
    assert said(60.0).startswith("Which dataset's Q-Anchored curve lies lowest is undecided (")


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("key", INTERPRETED, ids=str)
def test_so_does_the_interpretation(key, verdict):
    rule, claim = key
    found = text_of(section(words(FINDINGS[TWO], judged(OBSERVED[TWO], verdict, claim, rule)), "interpretation"))
    said = [other for other in VERDICTS if INTERPRETED[key].of(other) in found]
    assert said == [verdict]


def test_where_everything_is_undecided_nothing_is_claimed():
    for datasets in (("atlas",), TWO):
        prose = words(FINDINGS[datasets], judged(OBSERVED[datasets], "undecided"))
        claimed = [said for one in curve_statements(30) for said in (one.holds, one.fails)]
        bullets = [point.text for part in section(prose, "series").lists for point in part.points]
        for bullet in bullets:
            assert ". It " not in bullet
            assert "Undecided: that it starts" in bullet
            assert not any(bullet.startswith(f"300 items. It {clause}") for clause in claimed)
        text = all_text(prose)
        all_phrases = (KEY_PHRASES, SHARE_PHRASES, DATASET_PHRASES, INTERPRETED)
        for phrases in (one for those in all_phrases for one in those.values()):
            assert f"{phrases.of('holds')} (" not in text
            assert f"{phrases.of('does not hold')} (" not in text
            assert phrases.of("holds").rstrip(".") + "." not in text


def test_datasets_that_disagree_are_counted():
    found = [
        one | {"verdict": "holds" if one["dataset"] == "popqa" else "undecided"}
        if (one["claim"], one["assignment"]) == ("sorts_by_label", "plain")
        else one
        for one in OBSERVED[TWO]
    ]
    text = text_of(section(words(FINDINGS[TWO], found), "interpretation"))
    assert "holds for 1 of 2 datasets, is undecided for 1" in text
    assert INTERPRETED["plain", "sorts_by_label"].holds not in text


def test_a_curve_is_told_from_its_numbers():
    prose = told(sampled(valley(-40, -10, place=12), noise=0.3))
    q, a = section(prose, "series").lists[0].points
    assert q.text.startswith("300 items. It starts within ±5 points of zero")
    assert "So by construction: ΔP −40.0" in q.text  # no verdict: the rule sorts by it
    assert "lowest at layer 12" in q.text
    assert "comes back by more than 5 points (rise from the lowest layer to the end: 30.0" in q.text
    assert "never gets more than 5 points below zero" in a.text
    assert "middle third" not in a.text  # where it does not fall, where it is lowest means nothing


def test_the_range_that_is_drawn_is_named():
    text = text_of(section(told(sampled(valley(-40, -10), np.full(LAYERS, 3.0), noise=0.5)), "components"))
    assert "run from −40.0 to 3.0, with their bands from −41.0 to 4.0" in text
    assert "layer, from 0 to 29" in text
    assert "PopQA blue and orange, TriviaQA green and red" in text_of(section(told(FINDINGS[TWO]), "components"))
    assert "mine," in text_of(section(told(run_of(("mine", "atlas"))), "components"))  # no name for its colour


def test_one_dataset_says_that_nothing_is_compared():
    assert ONE_DATASET in all_text(told(FINDINGS["atlas",]))
    assert ONE_DATASET not in all_text(told(FINDINGS[TWO]))


def test_random_weights_are_called_noise_and_not_interpreted():
    findings = replace(FINDINGS["atlas",], random_weights=True)
    prose = told(findings)
    assert section(prose, "interpretation").paragraphs == (NOISE,)
    assert NOISE in section(prose, "overview").paragraphs
    assert NOISE not in all_text(told(FINDINGS["atlas",]))


def test_without_draws_and_without_numbers_it_still_reads():
    bare = run_of(("atlas",))
    text = all_text(told(replace(bare, curves=bare.curves.clear())))
    assert "nothing can be said about its shape" in text
    assert "What is drawn: not available" in text
    assert words(bare, []).sections  # no readings at all


def test_an_older_run_says_what_it_cannot_tell():
    assert NOT_MEASURED in text_of(section(told(run_of(("atlas",))), "interpretation"))
    assert NOT_MEASURED not in text_of(section(told(FINDINGS["atlas",]), "interpretation"))


def test_what_every_rule_brings_about_is_told_as_that():
    (bullets,) = section(told(FINDINGS[TWO]), "observations").lists
    (point,) = [one for one in bullets.points if one.label == "So by construction"]
    assert "plain rule: PopQA ΔP −52.0 [−54.5, −49.5] against −5.0" in point.text
    assert "one pathway as well" in point.text


def test_markup_is_left_to_the_template():
    hostile = replace(FINDINGS["atlas",], model="<b>M</b>")
    (opening, *_) = section(told(hostile), "overview").paragraphs
    assert "<b>M</b>" in opening
    assert not hasattr(opening, "__html__")  # a template would take that for markup of ours


def test_the_lowest_dataset_is_named_where_it_is_known():
    shapes = {(name, "plain", group): values for name, depth in (("popqa", -40), ("triviaqa", -60))
              for group, values in (("Q-Anchored", valley(depth, -10)), ("A-Anchored", np.zeros(LAYERS)))}  # fmt: skip
    findings = with_draws(run_of(TWO), shapes, 0.5)
    assert "that of TriviaQA lies lowest" in all_text(told(findings))
    noisy = all_text(told(with_draws(run_of(TWO), shapes, 30.0)))
    assert "that of TriviaQA lies lowest" not in noisy
    assert "Which dataset's Q-Anchored curve lies lowest is undecided" in noisy
