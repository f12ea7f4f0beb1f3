"""Laws of every check, and of the answer card: what it says follows from the readings and can be believed."""

import json
import re
from dataclasses import replace

import pytest

from anchorscope.report.answer_card import NOISE, answer_card, trust_in, trust_in_chart
from anchorscope.report.checks import CHECKS, read
from anchorscope.report.findings import TOGETHER, share_at
from anchorscope.report.page import fragment
from drawn_curves import FLAT, falling_to, run_with
from report_shares import World, with_shares

TWO = ("popqa", "triviaqa")


def run_of(world, datasets=("atlas",)):
    curves = dict.fromkeys(datasets, (falling_to(-40, last=-10), FLAT))
    return with_shares(run_with(curves, noise=1.0), world)


FINDINGS = {
    datasets: run_of(World(random=0.05, random_weights=0.02, half=0.03), datasets)
    for datasets in (("atlas",), TWO)
}
READ = {datasets: read(findings) for datasets, findings in FINDINGS.items()}


def card_of(world, datasets=("atlas",)):
    findings = run_of(world, datasets)
    return answer_card(findings, read(findings))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.claim)
def test_every_verdict_has_a_sentence_of_its_own(check):
    sentences = [
        check.sentence(verdict)
        for verdict in ("yes", "no", "inconclusive", "not measured")
    ]
    assert len(set(sentences)) == 4
    for sentence in sentences:
        assert sentence[0].isupper() or sentence.startswith("ΔP")
        assert not sentence.endswith(".")
        assert len(sentence.split()) <= 36


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
def test_every_check_is_read_and_its_record_keeps_the_words_of_the_file(datasets):
    checks = {check.claim: check for check in CHECKS}
    asked_for = {
        "share_resample_holds",
        "share_paraphrase_small",
    }  # read only where their passes ran
    assert {one.claim for one in READ[datasets]} == set(checks) - asked_for
    for one in READ[datasets]:
        assert one.record()["verdict"] in {"yes", "no", "inconclusive", "not measured"}
    json.dumps([one.record() for one in READ[datasets]], allow_nan=False)


def test_the_card_quotes_the_table_and_its_text_is_escaped():
    findings = replace(FINDINGS["atlas",], model="<b>M</b>")
    card = answer_card(findings, READ["atlas",])
    share = share_at(findings, "atlas", part=TOGETHER)
    quoted = f"{100 * share.value:.0f}% (95% CI {100 * share.ci_low:.0f}–{100 * share.ci_high:.0f})"
    assert quoted in card.sentence
    number = next(
        one
        for one in card.numbers
        if one.name == "evidence that needs question and answer together"
    )
    assert (number.value, number.ci_low, number.unit) == (
        share.value,
        share.ci_low,
        "share of the evidence",
    )
    assert number.verdict == "yes"
    page = fragment("card", {"card": replace(card, sentence="<i>a</i>")})
    assert "<i>a</i>" not in page
    assert len(card.next_steps) <= 3


@pytest.mark.parametrize("datasets", [("atlas",), TWO])
def test_every_dataset_has_its_parts_and_the_control_beside_them(datasets):
    findings, card = FINDINGS[datasets], answer_card(FINDINGS[datasets], READ[datasets])
    assert [bar.control for bar in card.bars] == [False, True] * len(datasets)
    cuts = [(name, cut) for name in datasets for cut in ("knockout", "random")]
    for bar, (name, cut) in zip(card.bars, cuts, strict=True):
        assert bar.parts["together"] == share_at(findings, name, cut, TOGETHER).value
        assert sum(bar.parts.values()) == pytest.approx(1.0)


def test_numbers_are_finite_or_null():
    card = card_of(World(), TWO)
    assert {one.name for one in card.numbers if one.name.endswith("(PopQA)")}
    json.dumps(card.record(), allow_nan=False)


@pytest.mark.parametrize(
    "world", [World(together=1.3), World(half=0.6), World(together=-4.0, half=30)]
)
def test_an_impossible_or_empty_number_is_never_the_answer(world):
    card = card_of(world)
    assert card.sentence.startswith("Inconclusive: ")
    assert not re.search(r"\d%", card.sentence)
    assert card.trust.verdict == "no"
    assert card.bars == ()


def test_shares_are_clipped_to_the_scale():
    assert (
        "100% (95% CI 94–100)"
        in card_of(World(together=1.03, question=0, answer=0, half=0.09)).sentence
    )


def test_trust_follows_the_controls_and_counts_them():
    good = card_of(World(random=0.02, half=0.02)).trust
    assert re.match(r"\d of \d controls passed", good.reason)
    assert (good.verdict, "failed" in good.reason) == ("yes", False)
    failed = card_of(World(random=0.3, half=0.02)).trust
    assert failed.verdict == "no"
    assert failed.reason.startswith(
        "more than a quarter as much of the evidence needs random words"
    )
    assert "controls passed" in failed.reason


def with_verdict(claim, verdict, failing=None):
    """The readings of a run, one of which came out otherwise."""
    return [
        replace(reading, verdict=verdict, failing=failing)
        if reading.claim == claim
        else reading
        for reading in READ["atlas",]
    ]


def test_the_chart_and_the_parts_are_trusted_each_by_its_own_controls():
    findings = FINDINGS["atlas",]
    parts = trust_in(findings, READ["atlas",])

    at_layers = with_verdict("random_small", "no", failing=(1, 2))
    chart = trust_in_chart(findings, at_layers)
    assert (chart.verdict, "at layers 1–2" in chart.reason) == ("partly", True)
    assert trust_in(findings, at_layers) == parts

    everywhere = with_verdict("noop", "no")
    assert trust_in_chart(findings, everywhere).verdict == "no"
    assert trust_in(findings, everywhere) == parts

    failed = with_verdict("share_random_small", "no")
    assert trust_in(findings, failed).verdict == "no"
    assert trust_in_chart(findings, failed) == trust_in_chart(findings, READ["atlas",])


def test_next_steps_offer_what_is_not_there_and_can_help(tmp_path):
    folder = tmp_path / "run"
    findings, readings = FINDINGS["atlas",], READ["atlas",]
    adds = next(one for one in readings if one.claim == "adds_to_confidence")
    readings = [*readings, replace(adds, verdict="yes")]

    def whys(**changes):
        there = replace(findings, folder=str(folder), **changes)
        return " ".join(step.why for step in answer_card(there, readings).next_steps)

    assert "Rule out the wording" in whys()
    assert "Train a hallucination detector" in whys()
    (folder / "detectors").mkdir(parents=True)
    (folder / "detectors" / "detection.json").write_text("{}")
    assert "Train a hallucination detector" not in whys()
    assert f"compared in {folder}/detectors/report.html" in whys()
    silent = whys(evidence_parts=findings.evidence_parts.clear())
    assert "Ask more questions" in silent
    assert "Rule out the wording" not in silent


def test_random_weights_are_called_noise_and_missing_parts_are_named():
    card = answer_card(replace(FINDINGS["atlas",], random_weights=True), READ["atlas",])
    assert (card.sentence, card.trust.verdict, card.bars) == (NOISE, "no", ())
    findings = FINDINGS["atlas",]
    bare = replace(findings, evidence_parts=findings.evidence_parts.clear())
    assert "did not measure its parts" in answer_card(bare, read(bare)).sentence
