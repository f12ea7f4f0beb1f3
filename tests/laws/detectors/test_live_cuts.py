"""Live cuts: the numbers of a run's own path, in one pass, and a record that says what it cannot say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.catalogue import KNOCKOUT
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.live_cuts import DRAWS, live_cuts
from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError
from anchorscope.evidence.effects import Scoring, measure
from anchorscope.evidence.measured import true_label_probability
from anchorscope.execute.run_passes import run_states
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_cut
from anchorscope.probes.crossfit import ProbeSet
from detector_cases import CLEAN, OTHER, PAIRS, added, probe, probes_of, trained_on

QUESTION, ANSWER = PAIRS[1]


@pytest.fixture(scope="module")
def detector(tiny_llama: LanguageModel) -> Detector:
    return Detector(trained_on(tiny_llama, layer_probes=probes_of(tiny_llama)), tiny_llama)


@pytest.mark.parametrize("site", SITES)
def test_delta_p_is_that_of_a_run(tiny_llama: LanguageModel, site: str) -> None:
    probes = probes_of(tiny_llama, site)
    detector = Detector(trained_on(tiny_llama, layer_probes=probes), tiny_llama)
    session = detector.session
    items = session.items([asked(*pair, place) for place, pair in enumerate(PAIRS)])
    labels = np.array([True, False, True, False, True])
    one = ProbeSet(
        probes.weight[None, None],
        torch.tensor(probes.bias)[None, None],
        np.ones((1, 1, len(probes.layers))),
        np.array(probes.auc)[None, None],
        (),
    )
    scoring = Scoring(((one,) * len(SITES),), np.zeros(len(items), dtype=np.int64))
    setting = Setting((detector.trained.setting.position,), "all", 0, lambda: pytest.fail("nothing is rewritten"))
    passes = passes_of([plan_cut(INTERVENTIONS[KNOCKOUT], items, setting)], items, setting, session.planner)
    (effect,), _ = measure(session.executor, passes, scoring, setting, lambda _: (), session.progress)
    clean_pass = replace(
        session.planner.states("clean", [item.sequence(setting.positions) for item in items], ()),
        probes=scoring.probes(),
    )
    clean = run_states(session.executor, clean_pass, session.progress).variants[0].logits
    assert clean is not None
    before, after = (found[:, 0, SITES.index(site), 0].T for found in (clean, effect.logits))
    wanted = 100 * (true_label_probability(after, labels) - true_label_probability(before, labels))
    for place, pair in enumerate(PAIRS):
        found = live_cuts(detector, *pair)
        moved, sure = found.delta_p(KNOCKOUT), found.probability["clean"]
        assert moved is not None
        assert np.abs(wanted[1:, place]).max() > 1e-3  # there is something to agree on
        np.testing.assert_allclose(moved if labels[place] else -moved, wanted[:, place], atol=1e-4)
        own = sure if labels[place] else 1 - sure
        np.testing.assert_allclose(own, true_label_probability(before, labels)[:, place], atol=1e-6)


def test_the_record_is_whole_and_plain(detector: Detector) -> None:
    found = live_cuts(detector, f"  {QUESTION} \n", ANSWER).record()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["question"] == QUESTION
    assert found["answer"] == ANSWER
    assert not found["generated"]
    for word in found["words"]:
        assert QUESTION[word["start"] : word["end"]] == word["text"]
    assert {"capital", "Peru"} == {word["text"] for word in found["words"] if word["key"]}
    n = detector.session.lm.n_layers
    assert found["layers"] == list(range(n))
    assert found["reference_layer"] == n - 1
    for part in ("probability", "delta_p"):
        assert [one["word"] for one in found[part]["alone"]] == [3, 5]
        assert {len(one["values"]) for one in found[part]["alone"]} == {n}
    assert len(found["probability"]["random"]) == DRAWS
    assert found["delta_p"]["chosen"] is None
    assert "mostly noise" in found["note"]


def test_the_score_is_the_detectors_own(detector: Detector, tiny_llama: LanguageModel) -> None:
    found = live_cuts(detector, QUESTION, ANSWER)
    same = detector.score(QUESTION, ANSWER)
    assert found.score.log_odds == pytest.approx(same.log_odds, abs=1e-5)
    assert (found.score.verdict, found.score.warnings) == (same.verdict, same.warnings)
    assert found.score_cut is not None
    same_probe = replace(probes_of(tiny_llama), weight=torch.stack([probe().weight] * 4), bias=(probe().bias,) * 4)
    single = Detector(trained_on(tiny_llama, layer_probes=same_probe), tiny_llama)
    cut = live_cuts(single, QUESTION, ANSWER).probability[KNOCKOUT][CLEAN[2]]
    assert found.score_cut.log_odds == pytest.approx(1.5 * np.log(cut / (1 - cut)) - 0.2, abs=1e-5)
    assert found.score_cut.log_odds != same.log_odds
    more = added((probe(), probe(OTHER, 3), probe(("question-only", "residual", 0))), ("entropy_mean",))
    reads = Detector(trained_on(tiny_llama, fitted=more, layer_probes=probes_of(tiny_llama)), tiny_llama)
    other = live_cuts(reads, QUESTION, ANSWER)
    assert other.score_cut is None
    assert other.score.log_odds == pytest.approx(reads.score(QUESTION, ANSWER).log_odds, abs=1e-5)


def test_words_that_somebody_chose(detector: Detector) -> None:
    every = live_cuts(detector, QUESTION, ANSWER)
    keys = [place for place, word in enumerate(every.words) if word.key]
    same = live_cuts(detector, QUESTION, ANSWER, keys)
    np.testing.assert_allclose(same.delta_p("chosen"), every.delta_p(KNOCKOUT), atol=1e-4)  # type: ignore[arg-type]
    one = live_cuts(detector, QUESTION, ANSWER, [keys[0]])
    np.testing.assert_allclose(one.delta_p("chosen"), every.delta_p(f"word {keys[0]}"), atol=1e-4)  # type: ignore[arg-type]
    other = live_cuts(detector, QUESTION, ANSWER, [0, 0]).record()
    assert other["chosen"] == [0]
    assert np.abs(other["delta_p"]["chosen"]).max() > 1e-4
    for bad in ([len(every.words)], [-1]):
        with pytest.raises(UserError, match=f"and the question has {len(every.words)} words; give numbers from 0 to"):
            live_cuts(detector, QUESTION, ANSWER, bad)


def test_the_model_answers_where_nobody_does(detector: Detector) -> None:
    found = live_cuts(detector, QUESTION, None)
    assert found.generated
    assert found.score.answer == detector.score(QUESTION).answer
    with pytest.raises(UserError, match="The answer is empty"):
        live_cuts(detector, QUESTION, "  ")
    with pytest.raises(UserError, match="Question 1 is empty"):
        live_cuts(detector, " ", ANSWER)
