"""What is said of detectors: yes where the made-up world says so, no where it says no, undecided where it cannot."""

import json
import math
from pathlib import Path

import polars as pl
import pytest

from anchorscope.report.detection import (
    DetectionResults,
    detection_card,
    mean_estimate,
    read_detection,
    recommend,
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
    readings = read_detection(results, context.left_out)
    return (
        results,
        {one.claim: one for one in readings},
        detection_card(results, readings, context).sentence,
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
        "Use probe+confidence (1 extra pass per answer): AUROC 0.845;"
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
    write_world(World(tossed=0.53), tmp_path)
    results = DetectionResults(tmp_path)
    ends = [
        pl.lit(math.nan).alias("low"),
        pl.lit(math.nan).alias("high"),
    ]  # a single permutation has none
    results.controls = results.controls.with_columns(ends)
    assert {reading.claim: reading.verdict for reading in read_detection(results, {})}[
        "permuted_labels"
    ] == "inconclusive"


def test_a_control_is_never_recommended(tmp_path):
    results, *_ = asked(World(truth=changed(mop_random_gate=0.97)), tmp_path)
    assert (
        max(
            results.names,
            key=lambda name: results.value(name, ("popqa", "popqa")).value,
        )
        == "mop-random-gate"
    )
    chosen = recommend(results)
    assert chosen is not None
    assert chosen.detector == "probe+confidence"


@pytest.mark.parametrize(
    ("truth", "chosen"),
    [
        ({}, "probe+confidence"),
        ({"pr-attention": 0.89}, "pr-attention"),  # +0.03 for one further pass
        (
            {"pr-attention": 0.868},
            "probe+confidence",
        ),  # better, and not by what the pass costs
        ({"saplma": 0.868}, "saplma"),  # the same gain at the same price
        (
            {"pr-attention": 0.895, "auto": 0.89},
            "auto",
        ),  # a further pass for 0.035 against none for 0.03
        ({"confidence": 0.859}, "confidence"),  # as good, and free
        ({"confidence": 0.84}, "probe+confidence"),
    ],
)
def test_what_is_worth_its_passes(tmp_path, truth, chosen):
    found = recommend(asked(World(truth=changed(**truth)), tmp_path)[0])
    assert found is not None
    assert found.detector == chosen


@pytest.mark.parametrize(
    ("truth", "chosen"),
    [
        ({"auto": 0.861}, "auto"),
        ({"auto": 0.853}, "auto"),
        ({"auto": 0.845}, "probe+confidence"),
        (
            {"auto": 0.845, "confidence": 0.8405},
            "probe+confidence",
        ),  # cheaper, and 0.02 worse at home
        (
            {"auto": 0.866, "saplma": 0.868},
            "auto",
        ),  # the best at home has no difference of its own to it
    ],
)
def test_of_those_as_good_at_home_the_best_elsewhere_is_chosen(tmp_path, truth, chosen):
    lost = dict.fromkeys(TRUTH, 0.1) | {"confidence": 0.0, "auto": 0.05}
    found = recommend(asked(World(truth=changed(**truth), lost=lost), tmp_path)[0])
    assert found is not None
    assert found.detector == chosen


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
