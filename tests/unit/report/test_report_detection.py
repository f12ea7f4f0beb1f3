"""What is said of detectors: yes where the made-up world says so, no where it says no, undecided where it cannot."""

import json
import math
import re
from pathlib import Path

import polars as pl
import pytest

from anchorscope.detectors.recommend import recommend
from anchorscope.report.detection import (
    DetectionResults,
    detection_card,
    mean_estimate,
    read_detection,
)
from anchorscope.report.reading import Reading
from anchorscope.stats.estimate import Estimate
from detection_synthetic import TRUTH, World, write_world


def asked(
    world: World, folder: Path
) -> tuple[DetectionResults, dict[str, Reading], str]:
    """The numbers, the checks by name, and the sentence of the page."""
    context = write_world(world, folder)
    results = DetectionResults(folder)
    chosen = recommend(results.names, results.mean)
    readings = read_detection(results, context, chosen)
    return (
        results,
        {one.claim: one for one in readings},
        detection_card(results, readings, context, chosen).sentence,
    )


def verdicts(world: World, folder: Path) -> dict[str, str | None]:
    return {name: one.verdict for name, one in asked(world, folder)[1].items()}


def changed(**truth: float) -> dict[str, float]:
    return TRUTH | {
        name.replace("_and_", "+").replace("_", "-"): value
        for name, value in truth.items()
    }


def test_confidence_helps_and_pathways_do_not(tmp_path):
    found = verdicts(World(), tmp_path)
    assert found["probe_and_confidence_beats_probe"] == "yes"
    assert found["auto_beats_probe"] == "yes"
    for claim in (
        "mop_beats_probe",
        "mop_beats_probe_and_confidence",
        "pr_attention_beats_probe",
        "auto_beats_probe_and_confidence",
        "mop_beats_random_gate",
        "pr_attention_beats_constant_gate",
        "auto_transfers",
    ):
        assert found[claim] == "no", claim
    assert found["calibrated"] == found["permuted_labels"] == "yes"


def test_the_same_questions_say_yes_in_the_papers_world(tmp_path):
    truth = changed(mop=0.89, pr_attention=0.91, auto=0.93, mop_random_gate=0.76)
    found = verdicts(World(truth=truth, lost=dict.fromkeys(TRUTH, 0.0)), tmp_path)
    for claim in (
        "mop_beats_probe",
        "mop_beats_probe_and_confidence",
        "pr_attention_beats_probe_and_confidence",
        "auto_transfers",
        "mop_beats_random_gate",
        "mop_beats_constant_gate",
    ):
        assert found[claim] == "yes", claim


def test_wide_intervals_decide_nothing(tmp_path):
    found = verdicts(World(paired=0.2, width=0.3), tmp_path)
    assert found["probe_and_confidence_beats_probe"] == "inconclusive"
    assert found["mop_beats_probe"] == "inconclusive"
    assert found["auto_transfers"] == "inconclusive"


def test_without_intervals_nothing_is_decided_and_nothing_breaks(tmp_path):
    _, readings, sentence = asked(World(paired=math.nan, width=math.nan), tmp_path)
    assert {one.verdict for one in readings.values() if one.standing != "control"} == {
        "inconclusive"
    }
    assert sentence.startswith(
        "Use confidence (no extra pass per answer): AUROC 0.785;"
    )
    assert (
        "None of the 8 others is shown to gain more than its extra passes" in sentence
    )
    json.dumps([one.record() for one in readings.values()], allow_nan=False)


def test_p_values_are_corrected_together(tmp_path):
    mop = asked(World(truth=changed(mop=0.8222), paired=0.004), tmp_path)[1][
        "mop_beats_probe"
    ]
    assert mop.estimate is not None
    assert mop.estimate.ci_low > 0, "the interval alone would say yes"
    assert mop.p_value is not None
    assert mop.p_corrected is not None
    assert mop.p_value < 0.05 < mop.p_corrected
    assert mop.verdict == "no"


def test_nothing_is_recommended_where_the_permuted_label_control_fails(tmp_path):
    _, readings, sentence = asked(World(tossed=0.53), tmp_path)
    assert readings["permuted_labels"].verdict == "no"
    assert sentence.startswith(
        "No detector is recommended: the permuted-label control failed."
    )


def test_a_permuted_label_control_without_an_interval_fails_nothing(tmp_path):
    context = write_world(World(tossed=0.53), tmp_path)
    results = DetectionResults(tmp_path)
    ends = [
        pl.lit(math.nan).alias("low"),
        pl.lit(math.nan).alias("high"),
    ]  # a single permutation has none
    results.controls = results.controls.with_columns(ends)
    assert {
        reading.claim: reading.verdict
        for reading in read_detection(results, context, None)
    }["permuted_labels"] == "inconclusive"


@pytest.mark.parametrize(
    ("truth", "chosen", "told"),
    [
        ({}, "auto", "It gains +0.061 [0.058, 0.064] over confidence"),
        ({"pr-attention": 0.97, "mop-random-gate": 0.97}, "auto", ""),  # not for use
        ({"saplma": 0.9}, "saplma", "It gains +0.100 ["),
        (
            dict.fromkeys(TRUTH, 0.8) | {"saplma": 0.812},
            "confidence",
            "None of the 8 others is shown to gain more than its extra passes cost: saplma comes nearest with "
            "+0.012 [0.009, 0.015] over confidence (95% interval for 16 comparisons together), and not all of that "
            "interval lies above 0.010, the price of its extra passes.",
        ),
    ],
)
def test_the_sentence_says_what_decides(tmp_path, truth, chosen, told):
    sentence = asked(World(truth=TRUTH | truth), tmp_path)[2]
    assert sentence.startswith(f"Use {chosen} (")
    assert told in sentence


def test_of_those_that_gain_the_one_that_loses_least_on_other_data_is_chosen(tmp_path):
    lost = dict.fromkeys(TRUTH, 0.1) | {"confidence": 0.0, "auto": 0.05}
    world = World(truth=changed(auto=0.85), lost=lost)
    sentence = asked(world, tmp_path)[2]
    assert sentence.startswith("Use auto (1 extra pass per answer): AUROC 0.835;")
    assert (
        "; on other data 0.000 [−0.006, 0.006] over confidence. It gains +" in sentence
    )


def test_an_auroc_has_one_interval_that_of_its_row(tmp_path):
    """A second, corrected one beside the same number reads as a contradiction."""
    for world in (World(), World(truth=changed(auto=0.85)), World(tossed=0.53)):
        assert not re.search(r"AUROC [0-9.]+ \[", asked(world, tmp_path)[2])


def test_the_reasons_to_trust_are_sentences(tmp_path):
    context = write_world(World(), tmp_path)
    results = DetectionResults(tmp_path)
    chosen = recommend(results.names, results.mean)
    readings = read_detection(results, context, chosen)
    trust = detection_card(results, readings, context, chosen).trust
    assert trust is not None
    for reason in trust.reason.split("; "):
        assert re.search(r" (is|are) .*0\.05?", reason), reason
        assert ":" not in reason


def test_two_that_were_compared_are_no_comparisons_together(tmp_path):
    truth = {name: TRUTH[name] for name in ("confidence", "probe")}
    _, _, sentence = asked(World(datasets=("popqa",), truth=truth), tmp_path)
    assert "together" not in sentence
    assert "not tested on other data. It gains +0.020 [0.016, 0.024] over" in sentence


def test_a_difference_is_read_either_way_round(tmp_path):
    results, *_ = asked(World(), tmp_path)
    cell = ("popqa", "nq")
    gain, turned = (
        results.value("auto", cell, "confidence"),
        results.value("confidence", cell, "auto"),
    )
    assert gain is not None
    assert turned is not None
    assert (gain.value, gain.ci_high - gain.ci_low) == (
        pytest.approx(-0.039),
        pytest.approx(2 * 0.004),
    )
    assert (turned.value, turned.ci_low, turned.ci_high) == (
        -gain.value,
        -gain.ci_high,
        -gain.ci_low,
    )
    assert results.value("auto", cell, "nothing") is None


def test_means_of_datasets_have_narrower_intervals_than_means_of_pairs():
    four = [
        Estimate(value, value - 0.02, value + 0.02, 100, "")
        for value in (0.1, 0.2, 0.3, 0.4)
    ]
    apart, together = (
        mean_estimate(four, independent=True),
        mean_estimate(four, independent=False),
    )
    assert apart is not None
    assert together is not None
    assert (apart.value, apart.n) == (pytest.approx(0.25), 400)
    assert apart.ci_high - apart.value == pytest.approx(0.01)
    assert together.ci_high - together.value == pytest.approx(0.02)
    assert mean_estimate([], independent=True) is None
