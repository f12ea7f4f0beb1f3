"""Laws of every check, and of the answer card: what it says follows from the readings and can be believed."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from anchorscope.report.answer_card import NOISE, answer_card, card_from_record, card_html
from anchorscope.report.reading import FILE_VERDICTS
from anchorscope.report.shares import share_at, share_layer
from anchorscope.report.statements import STATEMENTS, read
from report_sampled import sampled, valley
from report_shares import World, with_shares

TWO = ("popqa", "triviaqa")


def run_of(world, datasets=("atlas",)):
    rules = ("plain", "corrected", "cross-fitted")
    return with_shares(sampled(valley(-40, -10), datasets=datasets, rules=rules), world)


FINDINGS = {datasets: run_of(World(random_weights=0.02), datasets) for datasets in (("atlas",), TWO)}
READ = {datasets: read(findings) for datasets, findings in FINDINGS.items()}


def card_of(world, datasets=("atlas",)):
    findings = run_of(world, datasets)
    return answer_card(findings, read(findings))


@pytest.mark.parametrize("check", STATEMENTS, ids=lambda check: check.claim)
def test_every_verdict_has_a_sentence_of_its_own(check):
    sentences = [check.sentence(verdict) for verdict in ("yes", "no", "inconclusive", "not measured")]
    assert len(set(sentences)) == 4
    for sentence in sentences:
        assert sentence[0].isupper() or sentence.startswith("ΔP")
        assert not sentence.endswith(".")
        assert len(sentence.split()) <= 36


def test_a_claim_is_asked_once_of_each_rule():
    asked = [(check.claim, rule) for check in STATEMENTS for rule in check.rules]
    assert len(asked) == len(set(asked))
    assert all({*check.built_in, *check.key} <= set(check.rules) for check in STATEMENTS)


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
def test_every_check_is_read_and_its_record_keeps_the_words_of_the_file(datasets):
    checks = {check.claim: check for check in STATEMENTS if check.scope != "model" or len(datasets) > 1}
    assert {one.claim for one in READ[datasets]} == set(checks)
    for one in READ[datasets]:
        assert (one.verdict is None) == (one.assignment in checks[one.claim].built_in)
        assert one.record()["verdict"] == FILE_VERDICTS[one.verdict]
        assert one.record()["verdict"] in {None, "holds", "does not hold", "undecided"}
    json.dumps([one.record() for one in READ[datasets]], allow_nan=False)


def test_the_card_quotes_the_table_and_comes_back_from_its_record():
    findings = replace(FINDINGS["atlas",], model="<b>M</b>")
    card = answer_card(findings, READ["atlas",])
    assert card_from_record(json.loads(json.dumps(card.record()))) == card
    share = share_at(findings, "atlas", share_layer(findings, "atlas"))
    quoted = f"{100 * share.value:.0f}% (95% CI {100 * share.ci_low:.0f}–{100 * share.ci_high:.0f})"
    assert quoted in card.sentence
    number = next(one for one in card.numbers if one.name == "evidence removed by hiding the key words")
    assert (number.value, number.ci_low, number.unit) == (share.value, share.ci_low, "share of the evidence")
    assert number.verdict == "yes"
    page = card_html(replace(card, sentence="<i>a</i>"))
    assert "<i>a</i>" not in page
    assert len(card.next_steps) <= 3


def test_numbers_are_finite_or_null():
    card = card_of(World(), TWO)
    assert {one.name for one in card.numbers if one.name.endswith("(PopQA)")}
    json.dumps(card.record(), allow_nan=False)


@pytest.mark.parametrize("world", [World(share=1.3, half=0.1), World(share=0.5, half=0.6), World(share=-4.0, half=30)])
def test_an_impossible_or_empty_number_is_never_the_answer(world):
    card = card_of(world)
    assert card.sentence.startswith("Inconclusive: ")
    assert not re.search(r"\d%", card.sentence)
    assert card.trust.verdict == "no"
    assert card.bars == ()


def test_shares_are_clipped_to_the_scale():
    assert "100% (95% CI 94–100)" in card_of(World(share=1.03, half=0.08)).sentence


def test_trust_follows_the_controls_and_counts_them():
    good = card_of(World(random=0.02, half=0.02)).trust
    assert re.match(r"\d of \d controls passed", good.reason)
    elsewhere = card_of(World(random=0.02, half=0.02, spoilt={("random", 25): 0.5})).trust
    assert elsewhere.verdict == "partly"
    assert "at layer 25" in elsewhere.reason
    assert "1 failed" in elsewhere.reason
    at_tested = card_of(World(random=0.02, half=0.02, spoilt={("random", 17): 0.5})).trust
    assert at_tested.verdict == "no"


def test_random_weights_are_called_noise_and_a_probe_that_reads_nothing_is_named():
    card = answer_card(replace(FINDINGS["atlas",], random_weights=True), READ["atlas",])
    assert (card.sentence, card.trust.verdict, card.bars) == (NOISE, "no", ())
    findings = FINDINGS["atlas",]
    blind = findings.probe_scores.with_columns(auc=pl.lit(0.45), ci_low=pl.lit(0.4), ci_high=pl.lit(0.5))
    bare = replace(findings, probe_scores=blind, question_share=findings.question_share.clear())
    assert "can't tell true from false" in answer_card(bare, read(bare)).sentence
