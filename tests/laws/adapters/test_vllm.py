"""Files of the form that vLLM documents, made by transformers from a tiny model, give what `Detector.score` gives."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from anchorscope.adapters.vllm import StateScorer, main
from anchorscope.detectors.bundle import write_bundle
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load as load_model
from detector_cases import PAIRS, probe, trained_on

KEY = ("clean", "residual", 1)
LAYERS = (1, 2)


@pytest.fixture(scope="module")
def lm(save_tiny: Callable[[str], Path]) -> LanguageModel:
    return load_model(str(save_tiny("llama")))


@pytest.fixture(scope="module")
def trained(lm: LanguageModel) -> TrainedDetector:
    span = trained_on(lm).range
    assert span is not None
    return trained_on(lm, fitted=probe(KEY), range=replace(span, key=KEY))


def write_states(lm: LanguageModel, ids: list[int], path: Path, layers: tuple[int, ...] = LAYERS) -> Path:
    """What vLLM writes of a request: the stream that enters its layers, at every token."""
    with torch.no_grad():
        found = lm.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    stacked = torch.stack([found[layer][0] for layer in layers], dim=1).contiguous()
    save_file({"hidden_states": stacked, "token_ids": torch.tensor(ids)}, path)
    return path


def request_ids(detector: Detector, pair: tuple[str, str]) -> list[int]:
    (item,) = detector.session.items([asked(*pair)])
    return list(item.located.input_ids)


def test_the_scores_are_those_of_the_detector_on_its_model(
    lm: LanguageModel, trained: TrainedDetector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = Detector.load(trained, lm)
    wanted = detector.score_many(PAIRS)
    on = [[], lm.tokenizer.encode("\nQuestion: and", add_special_tokens=False), [lm.tokenizer.eos_token_id]]
    on.append(on[2] + lm.tokenizer.encode("\n<s>user", add_special_tokens=False))
    for number, pair in enumerate(PAIRS):  # some go on after the answer, or end with a token, as a model does
        ids = request_ids(detector, pair) + on[number % 4]
        write_states(lm, ids, tmp_path / f"{number}.safetensors")
    (tmp_path / "0.safetensors.lock").touch()
    bundle = tmp_path / "bundle"
    write_bundle(bundle, trained)
    words = ["--detector", str(bundle), "--layers", "1,2", *(str(tmp_path / f"{n}.safetensors") for n in range(5))]
    assert main(words) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(wanted)
    for row, one in zip(rows, wanted, strict=True):
        assert (row["question"], row["answer"], row["verdict"]) == (one.question, one.answer, one.verdict)
        assert row["log_odds"] == pytest.approx(one.log_odds, abs=1e-4)
        assert row["truth_probability"] == pytest.approx(one.truth_probability, abs=1e-4)
    folder = tmp_path / "in one folder"
    folder.mkdir()
    write_states(lm, request_ids(detector, PAIRS[0]), folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes(b"no")
    assert main([*words[:4], str(folder)]) == 2  # one is told, the other scored
    told = capsys.readouterr()
    assert json.loads(told.out)["file"] == "a.safetensors"
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1


def test_another_layer_is_another_score(lm: LanguageModel, trained: TrainedDetector, tmp_path: Path) -> None:
    detector = Detector.load(trained, lm)
    path = write_states(lm, request_ids(detector, PAIRS[0]), tmp_path / "a.safetensors")
    right = StateScorer(trained, lm.tokenizer, LAYERS).score(path).log_odds
    wrong = StateScorer(trained, lm.tokenizer, (2, 1)).score(path).log_odds
    assert right is not None
    assert wrong != pytest.approx(right, abs=1e-3)


def test_what_vllm_cannot_show_is_refused(lm: LanguageModel, trained: TrainedDetector) -> None:
    for other in (probe(), probe(("knockout", "residual", 1))):
        with pytest.raises(UserError, match="train one there: anchorscope run --site residual"):
            StateScorer(replace(trained, fitted=other), lm.tokenizer, LAYERS)
    with pytest.raises(UserError, match=r"needs vLLM's layers \[2\]"):
        StateScorer(trained, lm.tokenizer, (1, 3))
    with pytest.raises(UserError, match="The tokenizer is not that of"):
        StateScorer(replace(trained, setting=replace(trained.setting, tokenizer="x")), lm.tokenizer, LAYERS)


def test_a_request_that_is_not_the_detectors_prompt_is_refused(
    lm: LanguageModel, trained: TrainedDetector, tmp_path: Path
) -> None:
    detector, scorer = Detector.load(trained, lm), StateScorer(trained, lm.tokenizer, LAYERS)
    ids = request_ids(detector, PAIRS[0])
    path = tmp_path / "a.safetensors"
    for wrong in (ids[3:], lm.tokenizer.encode("Who wrote Emma?"), ids[:20]):
        with pytest.raises(UserError, match="are not the detector's few-shot prompt and an answer"):
            scorer.score(write_states(lm, wrong, path))
    with pytest.raises(UserError, match="has states of the shape"):
        scorer.score(write_states(lm, ids, path, layers=(1,)))
    with pytest.raises(UserError, match="There is no file"):
        scorer.score(tmp_path / "none.safetensors")
    save_file({"token_ids": torch.tensor(ids)}, path)
    with pytest.raises(UserError, match="vLLM's files hold hidden_states and token_ids"):
        scorer.score(path)
