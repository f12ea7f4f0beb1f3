"""Live cuts: the detector's own probability on the cut states of a run, in one pass, and a record that says so."""

import json
from dataclasses import replace

import pytest
from scipy.special import expit, logit

from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import asked
from anchorscope.detectors.detector import DRAWS, Detector, live_cuts
from anchorscope.detectors.fitted import WithFallback
from anchorscope.engine.sequences import CLEAN, SITES, Variant
from anchorscope.errors import UserError
from anchorscope.execute.run_passes import run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import plan_cut
from detector_cases import PAIRS, added, probe, trained_on

QUESTION, ANSWER = PAIRS[1]
ASKED = asked(QUESTION, ANSWER)


@pytest.fixture(scope="module")
def detector(tiny_llama: LanguageModel) -> Detector:
    return Detector(trained_on(tiny_llama), tiny_llama)


@pytest.mark.parametrize("site", SITES)
def test_the_probability_is_that_of_a_runs_cut_states(
    tiny_llama: LanguageModel, site: str
) -> None:
    fitted = probe(("clean", site, 2))
    detector = Detector(trained_on(tiny_llama, fitted=fitted), tiny_llama)
    session = detector.session
    items = session.items([asked(*pair, place) for place, pair in enumerate(PAIRS)])
    setting = Setting(
        (detector.trained.setting.position,),
        "all",
        0,
        lambda: pytest.fail("nothing is rewritten"),
    )
    runs = plan_cut(INTERVENTIONS[KNOCKOUT], items, setting).runs
    sequences = [item.sequence(setting.positions) for item in items]
    cut = Variant({run.item: run.cut for run in runs})
    work = replace(
        session.planner.states("cut", sequences, (), [CLEAN, cut]),
        keep=(((0, SITES.index(site)),),) * 2,
    )
    clean, after = (
        part.states[0, 2]
        for part in run_states(session.executor, work, session.progress).variants
    )
    for place, pair in enumerate(PAIRS):
        cuts = live_cuts(detector, asked(*pair))[1]["probability"]
        for states, run in ((clean, "clean"), (after, "all")):
            log_odds = (
                1.5
                * (float(states[place].double() @ fitted.weight.double()) + fitted.bias)
                - 0.2
            )
            assert cuts[run] == pytest.approx(expit(log_odds), abs=1e-5)
        assert abs(cuts["all"] - cuts["clean"]) > 5e-7  # there is something to agree on


def test_a_range_of_questions_stays_that_of_the_whole_question(
    tiny_llama: LanguageModel,
) -> None:
    """As `detect` makes them: the range, and auto's fallback, read the state before the answer."""
    made = trained_on(tiny_llama)
    assert made.range is not None
    span = replace(made.range, key=("question-only", "mlp", 2))
    for fitted in (
        probe(),
        WithFallback(probe(), probe(seed=1), replace(span, border=1.0, softness=10.0)),
    ):
        detector = Detector(replace(made, fitted=fitted, range=span), tiny_llama)
        cuts = live_cuts(detector, ASKED)[1]
        assert cuts["warnings"] == []
        if isinstance(fitted, WithFallback):
            (share,) = expit(
                fitted.range.log_odds(
                    detector.session.features(
                        detector.session.items([ASKED]), span.needs
                    )
                )
            )
            parts = [
                live_cuts(Detector(replace(made, fitted=part), tiny_llama), ASKED)[1][
                    "probability"
                ]["all"]
                for part in (fitted.detector, fitted.fallback)
            ]
            mixed = expit((1 - share) * logit(parts[0]) + share * logit(parts[1]))
            assert 0.01 < share < 0.99
            assert cuts["probability"]["all"] == pytest.approx(float(mixed), abs=2e-4)


def test_the_record_is_whole_and_plain(detector: Detector) -> None:
    _, record = live_cuts(detector, asked(f"  {QUESTION} \n", ANSWER))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["question"], record["answer"], record["generated"]) == (
        QUESTION,
        ANSWER,
        False,
    )
    for word in record["words"]:
        assert QUESTION[word["start"] : word["end"]] == word["text"]
    assert {"capital", "Peru"} == {
        word["text"] for word in record["words"] if word["key"]
    }
    assert [row["word"] for row in record["probability"]["alone"]] == [3, 5]
    assert len(record["probability"]["random"]) == DRAWS
    assert record["probability"]["chosen"] is None
    assert "mostly noise" in record["note"]


def test_the_score_is_the_detectors_own(
    detector: Detector, tiny_llama: LanguageModel
) -> None:
    same, (score, _) = detector.score(QUESTION, ANSWER), live_cuts(detector, ASKED)
    assert score.log_odds == pytest.approx(same.log_odds, abs=1e-5)
    assert (score.verdict, score.warnings) == (same.verdict, same.warnings)
    empty = {"clean": None, "all": None, "chosen": None, "alone": [], "random": []}
    more = added((probe(), probe(("question-only", "residual", 0))), ("entropy_mean",))
    reads_before = Detector(trained_on(tiny_llama, fitted=more), tiny_llama)
    score, record = live_cuts(reads_before, ASKED)
    assert record["probability"] | {"clean": None} == empty
    assert "cuts are not measured" in " ".join(record["warnings"])
    assert score.log_odds == pytest.approx(
        reads_before.score(QUESTION, ANSWER).log_odds, abs=1e-5
    )


def test_words_that_somebody_chose(detector: Detector) -> None:
    _, every = live_cuts(detector, ASKED)
    keys, n_words = (
        [number for number, word in enumerate(every["words"]) if word["key"]],
        len(every["words"]),
    )
    for chosen, wanted in (
        (keys, every["probability"]["all"]),
        (keys[:1], every["probability"]["alone"][0]["value"]),
    ):
        _, same = live_cuts(detector, ASKED, chosen)
        assert same["probability"]["chosen"] == pytest.approx(wanted, abs=1e-5)
    _, other = live_cuts(detector, ASKED, [0, 0])
    assert other["chosen"] == [0]
    assert abs(other["probability"]["chosen"] - other["probability"]["clean"]) > 1e-6
    for bad in ([n_words], [-1]):
        with pytest.raises(
            UserError,
            match=f"and the question has {n_words} words; give numbers from 0 to",
        ):
            live_cuts(detector, ASKED, bad)
