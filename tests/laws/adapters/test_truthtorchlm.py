"""With TruthTorchLM itself (`make adapters`): a detector as one of its truth methods."""

import copy
import math
import os
import warnings

import pytest

os.environ.setdefault(
    "LITELLM_LOCAL_MODEL_COST_MAP", "True"
)  # read at import: no test may use the network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip(
        "TruthTorchLM",
        reason="TruthTorchLM is not installed in this environment (make adapters)",
    )

from TruthTorchLM import generate_with_truth_value
from TruthTorchLM.truth_methods import Confidence

from anchorscope.adapters.truthtorchlm import AnchorTruth
from anchorscope.datasets.formats import first_line
from anchorscope.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the library

QUESTION = "What is the capital of Peru?"


@pytest.fixture(scope="module")
def method(bundle, tiny_llama):
    return AnchorTruth(bundle, tiny_llama.model, tiny_llama.tokenizer)


def test_in_its_generation_beside_its_own_method(method, tiny_llama):
    tokenizer = copy.deepcopy(
        tiny_llama.tokenizer
    )  # it is given a chat template on the way
    found = generate_with_truth_value(
        model=tiny_llama.model,
        tokenizer=tokenizer,
        messages=[{"role": "user", "content": QUESTION}],
        question=QUESTION,
        truth_methods=[method, Confidence()],
        max_new_tokens=6,
        do_sample=False,
        eos_token_id=257,
        pad_token_id=258,
    )
    wanted = method.detector.score(QUESTION, first_line(found["generated_text"]))
    told = found["method_specific_outputs"][0]
    assert told["truth_value"] == pytest.approx(wanted.log_odds, abs=1e-5)
    assert told["normalized_truth_value"] == pytest.approx(
        wanted.truth_probability, abs=1e-5
    )  # higher is true
    assert (told["verdict"], told["warnings"]) == (
        wanted.verdict,
        list(wanted.warnings),
    )
    assert len(found["unnormalized_truth_values"]) == 2


def test_an_answer_scores_as_the_detector_says(method, tiny_llama):
    model, tokenizer = tiny_llama.model, copy.deepcopy(tiny_llama.tokenizer)
    told = method(model, "any prompt", " Lima\nand more", QUESTION, None, tokenizer)
    assert told["truth_value"] == pytest.approx(
        method.detector.score(QUESTION, "Lima").log_odds, abs=1e-6
    )
    empty = method(model, "any prompt", " \n", QUESTION, None, tokenizer)
    assert (empty["truth_value"], empty["normalized_truth_value"]) == (-math.inf, 0.0)


def test_another_model_prompt_or_no_model_at_all_is_refused(method, tiny_llama):
    strict = AnchorTruth(method.detector, same_prompt=True)
    prompt = method.detector.trained.setting.template.text(QUESTION)
    assert (
        strict.forward_hf_local(tiny_llama.model, prompt, " Lima", QUESTION)[
            "truth_probability"
        ]
        > 0
    )
    with pytest.raises(UserError, match="not given the prompt"):
        strict.forward_hf_local(tiny_llama.model, f"{prompt} ", " Lima", QUESTION)
    with pytest.raises(UserError, match="another model object"):
        method.forward_hf_local(
            copy.deepcopy(tiny_llama.model), prompt, " Lima", QUESTION
        )
    with pytest.raises(UserError, match="shows none"):
        method("gpt-4o", messages=[], generated_text="Lima", question=QUESTION)
