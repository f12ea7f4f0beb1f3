"""What is said of detectors: yes where the made-up world says so, no where it says no, undecided where it cannot."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from anchorscope.errors import UserError
from anchorscope.report.detection import paper
from anchorscope.report.detection.answer_card import answer_sentence, tiles
from anchorscope.report.detection.averages import mean_of_cells, mean_of_datasets
from anchorscope.report.detection.detection_readings import DetectionReadings, read_detection
from anchorscope.report.detection.detection_tables import paper_table
from anchorscope.report.detection.recommendation import recommend
from anchorscope.report.detection.results import Cell, DetectionResults, shown_place
from anchorscope.stats.estimate import Estimate
from detection_synthetic import FOUR, TRUTH, World, write_world


def asked(world: World, folder: Path) -> tuple[DetectionResults, DetectionReadings]:
    context = write_world(world, folder)
    results = DetectionResults.read(folder, [one.name for one in context.datasets])
    return results, read_detection(results, context.left_out)


def verdicts(world: World, folder: Path) -> dict[str, str | None]:
    return {one.claim: one.verdict for one in asked(world, folder)[1].all}


def changed(**truth: float) -> dict[str, float]:
    return TRUTH | {name.replace("_and_", "+").replace("_", "-"): value for name, value in truth.items()}


def test_confidence_helps_and_pathways_do_not(tmp_path):
    found = verdicts(World(), tmp_path)
    assert found["probe_and_confidence_beats_probe"] == "holds"
    assert found["anchor_beats_probe"] == "holds"
    assert found["pr_delta_beats_probe"] == "holds"
    for claim in (
        "mop_beats_probe",
        "mop_beats_probe_and_confidence",
        "pr_attention_beats_probe",
        "counterfactual_beats_probe_and_confidence",
        "counterfactual_beats_random_cut",
        "anchor_beats_probe_and_confidence",
        "mop_hard_measured_gate",
        "mop_beats_two_probes",
        "anchor_transfers",
        "anchor_never_far_below_confidence",
    ):
        assert found[claim] == "does not hold", claim
    assert found["calibrated"] == found["tossed_labels"] == "holds"


def test_the_same_questions_say_yes_in_the_papers_world(tmp_path):
    truth = changed(
        mop=0.89,
        pr_attention=0.91,
        counterfactual=0.93,
        anchor=0.93,
        mop_hard_measured=0.9,
        mop_hard_predicted=0.89,
        mop_hard_random=0.76,
    )
    found = verdicts(World(truth=truth, lost=dict.fromkeys(TRUTH, 0.0)), tmp_path)
    for claim in (
        "mop_beats_probe",
        "mop_beats_probe_and_confidence",
        "pr_attention_beats_probe_and_confidence",
        "counterfactual_beats_probe_and_confidence",
        "counterfactual_beats_random_cut",
        "anchor_transfers",
        "anchor_never_far_below_confidence",
        "mop_hard_measured_gate",
        "mop_hard_predicted_gate",
    ):
        assert found[claim] == "holds", claim


def test_wide_intervals_decide_nothing(tmp_path):
    found = verdicts(World(paired=0.2, width=0.3), tmp_path)
    assert found["probe_and_confidence_beats_probe"] == "undecided"
    assert found["mop_beats_probe"] == "undecided"
    assert found["anchor_transfers"] == "undecided"


def test_without_intervals_nothing_is_decided_and_nothing_breaks(tmp_path):
    results, readings = asked(World(paired=math.nan, width=math.nan), tmp_path)
    assert {one.verdict for one in (*readings.tested, *readings.transfer)} - {"undecided"} <= set()
    assert "Without an interval nothing can be decided" in readings.tested[0].sure
    assert answer_sentence(results, readings.recommendation).startswith("Use probe+confidence: AUROC 0.845;")
    json.dumps([one.record("m") for one in readings.all], allow_nan=False)


def test_p_values_are_corrected_together(tmp_path):
    _, readings = asked(World(truth=changed(mop=0.8222), paired=0.004), tmp_path)
    mop = readings.one("mop_beats_probe")
    assert mop is not None
    assert mop.found is not None
    assert mop.found.ci_low > 0, "the interval alone would say yes"
    assert mop.p_value is not None
    assert mop.p_corrected is not None
    assert mop.p_value < 0.05 < mop.p_corrected
    assert mop.verdict == "does not hold"


def test_an_oracle_gate_gets_no_verdict_and_is_never_recommended(tmp_path):
    results, readings = asked(World(), tmp_path)
    oracles = [one for one in readings.all if one.claim.endswith("oracle")]
    assert len(oracles) == 3
    assert all(one.verdict is None and one.standing == "by construction" for one in oracles)
    assert all("has seen the label" in one.sure for one in oracles)
    assert readings.recommendation is not None
    assert readings.recommendation.detector == "probe+confidence"
    assert max(results.names, key=lambda name: TRUTH[name]).endswith("oracle")


@pytest.mark.parametrize(
    ("truth", "chosen"),
    [
        ({}, "probe+confidence"),
        ({"anchor": 0.885}, "anchor"),  # +0.025 for one further pass
        ({"anchor": 0.868}, "probe+confidence"),  # surely better, and not by what the pass costs
        ({"ensemble": 0.868}, "ensemble"),  # the same gain at the same price
        ({"counterfactual": 0.895, "anchor": 0.89}, "anchor"),  # two further passes for 0.035 against one for 0.03
        ({"confidence": 0.859}, "confidence"),  # as good, and free
        ({"confidence": 0.84}, "probe+confidence"),
    ],
)
def test_what_is_worth_its_passes(tmp_path, truth, chosen):
    results, _ = asked(World(truth=changed(**truth)), tmp_path)
    found = recommend(results)
    assert found is not None
    assert found.detector == chosen


def test_the_answer_comes_first_with_price_and_other_data(tmp_path):
    results, readings = asked(World(), tmp_path)
    said = answer_sentence(results, readings.recommendation)
    assert said == (
        "Use probe+confidence: AUROC 0.845 [0.835, 0.855]; it costs 1 pass per answer; on other data 0.745, where "
        "confidence alone has 0.785."
    )
    best, pathways, other, trust = tiles(results, readings)
    assert best.figure == "probe+confidence"
    assert (pathways.figure, pathways.verdict) == ("+0.002 [0.000, 0.004]", "does not hold")
    assert (other.figure, other.verdict) == ("0.745 [0.725, 0.765]", "does not hold")
    assert (trust.figure, trust.verdict) == ("ECE 0.020", "holds")


def test_a_broken_control_is_told_first(tmp_path):
    results, readings = asked(World(tossed=0.53, ece=0.08), tmp_path)
    trust = tiles(results, readings)[3]
    assert trust.verdict == "does not hold"
    assert "do not believe this table" in trust.detail
    assert "At most 0.05 in 0 of 8" in trust.detail
    near = verdicts(World(tossed=0.512), tmp_path / "near")
    assert near["tossed_labels"] == "does not hold"  # 0.512 ± 0.006 leaves out the half


def test_cells_far_below_confidence_are_named(tmp_path):
    world = World(
        truth={"confidence": 0.8, "probe": 0.83, "probe+confidence": 0.85, "anchor": 0.85},
        lost={"confidence": 0.0, "probe": 0.12, "probe+confidence": 0.0, "anchor": 0.0},
    )
    _, readings = asked(world, tmp_path)
    anchor, probe = (readings.one(f"{name}_never_far_below_confidence") for name in ("anchor", "probe"))
    assert anchor is not None
    assert probe is not None
    assert anchor.verdict == "holds"
    assert probe.verdict == "does not hold"
    assert "12 of 12 pairs, PopQA → TriviaQA (−0.090)" in probe.answer


def test_what_was_not_fitted_says_why(tmp_path):
    truth = {name: value for name, value in TRUTH.items() if not name.startswith(("pr-", "mop", "counter"))}
    context = write_world(World(truth=truth), tmp_path)
    context = replace(context, left_out={"pr-attention": "no strengthened attention was kept"})
    results = DetectionResults.read(tmp_path)
    readings = read_detection(results, context.left_out)
    attention, mop = readings.one("pr_attention_beats_probe"), readings.one("mop_beats_probe")
    assert attention is not None
    assert attention.answer == "Not measured here: no strengthened attention was kept."
    assert mop is not None
    assert (mop.answer, mop.verdict) == ("Not measured here: it was not fitted.", "undecided")
    assert tiles(results, readings)[1].figure == "not available"


@pytest.mark.parametrize("kept", [("probe",), ("confidence",), ("length", "p-true")])
def test_few_detectors_are_enough(tmp_path, kept):
    world = World(datasets=("atlas",), truth={name: TRUTH[name] for name in kept})
    results, readings = asked(world, tmp_path)
    assert readings.recommendation is not None
    assert readings.recommendation.detector == kept[0]
    assert answer_sentence(results, readings.recommendation).endswith("on other data it was not tested.")
    assert readings.transfer == ()


def test_the_papers_numbers_are_its_own(tmp_path):
    assert paper.mean_gain(paper.MOP) == pytest.approx(0.033, abs=5e-4)
    assert paper.mean_gain(paper.PR) == pytest.approx(0.056, abs=5e-4)
    results, readings = asked(World(datasets=("atlas", "popqa")), tmp_path)
    mop = readings.one("mop_beats_probe")
    assert mop is not None
    assert "The paper reports +0.033 for MoP over its probe, mean of eight cells, no interval: above ours." in mop.why
    table = paper_table(results)
    assert table.head == ("whose", "detector", "PopQA", "TriviaQA", "HotpotQA", "NQ", "Atlas", "mean", "over its probe")
    theirs = next(row for row in table.rows if row[:2] == ("paper, Llama-3-8B", "MoP"))
    assert theirs == ("paper, Llama-3-8B", "MoP", "0.921", "0.812", "0.855", "0.746", "–", "0.833", "+0.037")
    ours = next(row for row in table.rows if row[:2] == ("here", "mop"))
    assert ours[2:] == ("0.822", "–", "–", "–", "0.822", "0.822 [0.808, 0.836]", "+0.002 [−0.001, 0.005]")


def test_differences_that_the_file_lacks_go_through_a_third_detector(tmp_path):
    results, _ = asked(World(), tmp_path)
    cell = Cell("popqa", "nq")
    found = results.difference("anchor", "confidence", cell)
    assert found is not None
    assert found.value == pytest.approx(-0.039)
    assert found.ci_high - found.ci_low == pytest.approx(4 * 0.004)
    turned = results.difference("probe", "anchor", cell)
    assert turned is not None
    assert (turned.value, turned.ci_low) == (pytest.approx(-0.041), pytest.approx(-0.045))
    assert results.difference("anchor", "nothing", cell) is None


def test_means_of_datasets_are_surer_than_means_of_cells():
    four = [Estimate(value, value - 0.02, value + 0.02, 100, "") for value in (0.1, 0.2, 0.3, 0.4)]
    apart, together = mean_of_datasets(four), mean_of_cells(four)
    assert apart is not None
    assert together is not None
    assert (apart.value, apart.n) == (pytest.approx(0.25), 400)
    assert apart.ci_high - apart.value == pytest.approx(0.01)
    assert together.ci_high - together.value == pytest.approx(0.02)
    assert mean_of_datasets([]) is None


def test_cells_are_sorted_into_their_kinds(tmp_path):
    results, readings = asked(World(prompt="zero-shot"), tmp_path)
    assert results.datasets == FOUR
    assert [len(kind) for kind in (results.in_domain, results.elsewhere, results.held_out, results.prompted)] == [
        4,
        12,
        4,
        4,
    ]
    assert shown_place("all but nq") == "all but NQ"
    assert shown_place("popqa (prompt zero-shot)") == "PopQA (prompt zero-shot)"
    assert {"anchor_held_out", "anchor_other_prompt"} <= {one.claim for one in readings.transfer}


def test_a_folder_of_something_else_is_told_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"detectors\.csv is missing"):
        DetectionResults.read(tmp_path)
    write_world(World(datasets=("atlas",)), tmp_path)
    (tmp_path / "differences.csv").write_text("detector,against\nprobe,mop\n", encoding="utf-8")
    with pytest.raises(UserError, match="no column 'train'") as told:
        DetectionResults.read(tmp_path)
    assert "\n" not in str(told.value)
    (tmp_path / "differences.csv").write_text(
        (tmp_path / "detectors.csv").read_text().replace("detector,train", "detector,against", 1)
    )
    with pytest.raises(UserError):
        DetectionResults.read(tmp_path)
