"""With lm-polygraph itself (`make adapters`): same metrics, same log-probabilities, a detector in its benchmark."""

import copy
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip(
        "lm_polygraph",
        reason="lm-polygraph is not installed in this environment (make adapters)",
    )


import torch
from lm_polygraph import Dataset, UEManager, WhiteboxModel, estimate_uncertainty
from lm_polygraph import estimators as its
from lm_polygraph.defaults.register_default_stat_calculators import (
    register_default_stat_calculators,
)
from lm_polygraph.stat_calculators.entropy import EntropyCalculator
from lm_polygraph.stat_calculators.greedy_probs import GreedyProbsCalculator
from lm_polygraph.utils.builder_enviroment_stat_calculator import (
    BuilderEnvironmentStatCalculator,
)
from lm_polygraph.utils.generation_parameters import GenerationParameters

from anchorscope.adapters.lm_polygraph import AnchorEstimator
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.features import COLUMNS
from anchorscope.engine.capture import capture
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.sequences import TokenSequence
from anchorscope.errors import UserError
from polygraph_parity import TOLERANCE, its_values, our_values, worlds

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the library

QUESTIONS = (
    "Who wrote Dracula?",
    "What is the capital of Peru?",
    "Who painted The Night Watch?",
)


@pytest.fixture(scope="module")
def whitebox(tiny_llama):
    """The tiny model as lm-polygraph wants one: attention that can be looked at, padding on the left."""
    model, tokenizer = (
        copy.deepcopy(tiny_llama.model),
        copy.deepcopy(tiny_llama.tokenizer),
    )
    model.set_attn_implementation("eager")
    tokenizer.padding_side = "left"
    return WhiteboxModel(
        model,
        tokenizer,
        model_path="tiny",
        generation_parameters=GenerationParameters(
            allow_newlines=True, max_new_tokens=6
        ),
    )


@pytest.fixture(scope="module")
def estimator(bundle, whitebox):
    return AnchorEstimator(bundle, whitebox)


def _stats(whitebox, texts):
    return GreedyProbsCalculator(output_attentions=False)(
        {}, texts, whitebox, max_new_tokens=6
    )


@pytest.mark.parametrize("world", worlds())
def test_metrics_are_the_same(world):
    given = worlds()[world]
    assert our_values(*given) == pytest.approx(its_values(*given), abs=TOLERANCE)


def test_log_probability_baselines_are_the_same(
    whitebox, estimator, tiny_llama, monkeypatch
):
    # lm-polygraph forbids the end token among the first two tokens of an answer, where it knows one, and tells the
    # log-probabilities of what is left.
    monkeypatch.setattr(whitebox.model.generation_config, "eos_token_id", None)
    stats = _stats(whitebox, [estimator.prompt(one) for one in QUESTIONS])
    stats |= EntropyCalculator()(stats)
    sequences = []
    for given, answer in zip(
        stats["input_tokens"], stats["greedy_tokens"], strict=True
    ):
        prompt = [
            token for token in given if token != tiny_llama.tokenizer.pad_token_id
        ]
        sequences.append(TokenSequence((*prompt, *answer), len(prompt), (len(prompt),)))
    found = {}

    def receive(_, batch, values, lengths):
        found.update(zip(batch, values.split(lengths, dim=1), strict=True))

    batches = [range(len(sequences))]
    capture(
        tiny_llama,
        sequences,
        NO_PREFIX,
        batches,
        lambda *_: None,
        answers_of=[0],
        receive_answers=receive,
    )
    ours = {
        name: [COLUMNS[name].made(found[item].numpy()) for item in range(3)]
        for name in COLUMNS
    }
    sums = [float(found[item][0].sum()) for item in range(3)]
    near = {"abs": 1e-4}
    assert its.MaximumSequenceProbability()(stats) == pytest.approx(
        -np.array(sums), **near
    )
    assert its.Perplexity()(stats) == pytest.approx(
        -np.array(ours["log_prob_mean"]), **near
    )
    assert its.MeanTokenEntropy()(stats) == pytest.approx(
        np.array(ours["entropy_mean"]), **near
    )


def test_the_estimator_gives_what_the_detector_says(
    bundle, whitebox, estimator, tiny_llama
):
    assert (estimator.stats_dependencies, estimator.level) == (
        ["input_tokens", "greedy_tokens"],
        "sequence",
    )
    encode = tiny_llama.tokenizer
    answers = ("Bram Stoker", "Lima\nQuestion: and then?", "")
    texts = [estimator.prompt(one) for one in QUESTIONS]
    batch = encode(texts, padding=True)["input_ids"]
    stats = {
        "input_tokens": batch,
        "greedy_tokens": [[*encode(f" {one}")["input_ids"], 257] for one in answers],
    }
    found = estimator(stats)
    detector = Detector.load(bundle, tiny_llama.model, tiny_llama.tokenizer)
    wanted = detector.score_many(
        zip(QUESTIONS[:2], ("Bram Stoker", "Lima"), strict=True)
    )
    assert found[:2] == pytest.approx(
        [-one.truth_probability for one in wanted], abs=1e-6
    )
    assert np.isnan(found[2])
    bare = AnchorEstimator(detector, same_prompt=False)
    assert str(bare) != str(estimator)
    questions = {
        **stats,
        "input_tokens": encode(list(QUESTIONS), padding=True)["input_ids"],
    }
    assert bare(questions)[:2] == pytest.approx(found[:2], abs=1e-6)
    with pytest.raises(UserError, match="not the prompt"):
        estimator(questions)


def test_in_its_benchmark_beside_its_own_estimators(whitebox, estimator):
    texts = [estimator.prompt(one) for one in QUESTIONS]
    manager = UEManager(
        Dataset(texts, ["", "", ""], batch_size=2),
        whitebox,
        [estimator, its.Perplexity()],
        generation_metrics=[],
        ue_metrics=[],
        processors=[],
        builder_env_stat_calc=BuilderEnvironmentStatCalculator(whitebox),
        available_stat_calculators=register_default_stat_calculators(
            "Whitebox", output_attentions=False
        ),
        ignore_exceptions=False,
        verbose=False,
        max_new_tokens=6,
    )
    manager()
    found = manager.estimations["sequence", "anchorscope-probe"]
    assert len(found) == 3
    assert np.all((np.array(found) <= 0) & (np.array(found) >= -1))
    torch.manual_seed(0)
    one = estimate_uncertainty(whitebox, estimator, input_text=texts[0])
    assert one.uncertainty == pytest.approx(found[0], abs=1e-4)
