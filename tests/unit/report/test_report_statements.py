"""Laws of every statement: its sentences follow the verdicts, and a stranger can read them."""

import re
from dataclasses import replace
from itertools import product

import pytest

from anchorscope.report.answer_card import NOISE, answer_card, card_from_record, card_html
from anchorscope.report.statements import STATEMENTS, read
from anchorscope.report.statements.statement import estimate_in
from report_sampled import sampled, valley
from report_shares import World, with_shares

VERDICTS = ("holds", "does not hold", "undecided")
TWO = ("popqa", "triviaqa")
FINDINGS = {
    datasets: with_shares(
        sampled(valley(-40, -10), datasets=datasets, rules=("plain", "corrected", "cross-fitted")),
        World(random=0.05, random_weights=0.02, half=0.03),
    )
    for datasets in (("atlas",), TWO)
}
READ = {datasets: read(findings) for datasets, findings in FINDINGS.items()}


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: one.claim)
def test_every_verdict_has_a_sentence_of_its_own(statement):
    said = [statement.sentence(verdict) for verdict in VERDICTS]
    assert len(set(said)) == 3
    for sentence in said:
        assert sentence[0].isupper() or sentence.startswith("ΔP")
        assert not sentence.endswith(".")
        assert not re.search(r"[Tt]hat .* holds|is undecided is|undecided undecided", sentence)
        assert len(sentence.split()) <= 32
    assert "undecided" in said[2]
    assert "undecided" not in said[0] + said[1]


def test_a_claim_is_put_once_to_each_rule():
    put = [(one.claim, rule) for one in STATEMENTS for rule in one.rules]
    assert len(put) == len(set(put))
    assert all(set(one.built_in) <= set(one.rules) and set(one.key) <= set(one.rules) for one in STATEMENTS)


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
def test_every_statement_is_read_and_its_text_carries_its_verdict(datasets):
    known = {one.claim: one for one in STATEMENTS}
    found = READ[datasets]
    asked = {claim for claim, one in known.items() if one.scope != "model" or len(datasets) > 1}
    assert {one["claim"] for one in found} == asked
    for one in found:
        statement = known[one["claim"]]
        assert (one["verdict"] is None) == (one["assignment"] in statement.built_in)
        others = [statement.sentence(verdict) for verdict in VERDICTS if verdict != one["verdict"]]
        assert one["verdict"] is None or not any(f": {other} (" in one["text"] for other in others)


def judged(observations, verdict, *claims):
    return [one | {"verdict": verdict} if one["claim"] in claims else one for one in observations]


@pytest.mark.parametrize(("datasets", "verdict"), list(product([("atlas",), TWO], VERDICTS)))
def test_the_card_says_what_the_readings_say(datasets, verdict):
    findings, observations = FINDINGS[datasets], READ[datasets]
    needed = answer_card(findings, judged(observations, verdict, "needs_both"))
    assert needed.tiles[1].verdict == verdict
    beyond = answer_card(findings, judged(observations, verdict, "share_beyond_random"))
    assert beyond.tiles[2].verdict == verdict
    control = answer_card(findings, judged(observations, verdict, "share_random_small"))
    assert ("a control does not hold" in control.sentence) == (verdict != "holds")
    probe = answer_card(findings, judged(observations, verdict, "adds_to_confidence", "auc_above_nulls"))
    assert probe.tiles[0].verdict == verdict


def test_the_card_comes_back_from_its_record_and_shows_its_numbers():
    findings = replace(FINDINGS["atlas",], warnings=("400 of 400 answers were supplied",), model="<b>M</b>")
    card = answer_card(findings, READ["atlas",])
    assert card_from_record(card.record()) == card
    page = card_html(replace(card, sentence="<i>a</i>"))
    assert "<i>a</i>" not in page
    assert all(tile.figure.split()[0] in page for tile in card.tiles)
    assert "400 of 400 answers were supplied" in page
    (share,) = [one for one in READ["atlas",] if one["claim"] == "needs_both"]
    found = estimate_in(share)
    assert found is not None
    assert card.tiles[1].figure.startswith(f"{100 * found.value:.0f}")


def test_random_weights_are_called_noise():
    card = answer_card(replace(FINDINGS["atlas",], random_weights=True), READ["atlas",])
    assert card.sentence == NOISE
