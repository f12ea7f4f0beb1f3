"""`--keep detection`: every number and state by its definition, through transformers; kept, read back, and resumed."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.api import Run, open_run
from anchorscope.artefacts.schema import states_file
from anchorscope.catalogue import DETECTION_RUNS
from anchorscope.datasets.question import question_from_row
from anchorscope.detecting import detect as story
from anchorscope.detecting.detect import detect, read_runs
from anchorscope.detecting.inputs import open_runs
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.detector import Detector
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.finished import open_finished
from anchorscope.models.loading import load as load_model
from anchorscope.models.sources import build_shape
from anchorscope.recipe import Recipe
from hf_reference import eager, masked, watch
from small_facts import rows
from whole_runs import N_LAYERS, SmallRun, Stop, quick, stopping, watching

OWN_STEPS = [
    "facts/detection-samples",
    "facts/detection-columns",
    "facts/detection-states",
]
MLP = SITES.index("mlp")


@dataclass(frozen=True)
class Looked:
    """A finished run with everything kept, and its model as transformers has it."""

    recipe: Recipe
    path: Path
    told: list[str]

    @cached_property
    def run(self) -> Run:
        return open_run(self.path)

    @cached_property
    def lm(self) -> Any:
        return load_model(self.recipe.model, "float32", "cpu", False)

    @cached_property
    def items(self) -> list[dict[str, Any]]:
        return self.run.items.filter(pl.col("status") == "used").to_dicts()

    @cached_property
    def features(self) -> list[dict[str, Any]]:
        return self.run.features("facts").to_dicts()

    @cached_property
    def samples(self) -> list[list[str]]:
        (place,) = (self.path / "work" / "facts").glob(
            "detection-samples-*/records.json"
        )
        found: list[list[str]] = json.loads(place.read_text())
        return found

    def sequence(self, item: dict[str, Any]) -> TokenSequence:
        ids = tuple(item["input_ids"])
        start = len(ids) - len(
            self.lm.tokenizer(" " + item["model_answer"])["input_ids"]
        )
        return TokenSequence(ids, start, (len(ids) - 1,))

    def state(self, run: str, row: int) -> Tensor:
        """[layer, d_model]."""
        return torch.stack(
            [self.run.states("facts", layer, run)[row] for layer in range(N_LAYERS)]
        )


@pytest.fixture(scope="module")
def kept(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """A finished run, asked for everything that can be kept."""
    out = small_run.copy("finished", tmp_path_factory.mktemp("kept") / "run")
    recipe = small_run.recipe.model_copy(
        update={"keep": ("states", "states-cut", "detection")}
    )
    return Looked(
        recipe,
        out,
        [line for line in quick(recipe, out) if "is made again" not in line],
    )


ROWS = (0, 17, 79)
"""Items that are looked at one by one."""


def biased(n: int, keys: Sequence[int], bias: float) -> Tensor:
    """What eager attention adds to the scores: the causal mask, and the bias on every edge to one of the keys."""
    mask = torch.full((n, n), -math.inf).triu(1)
    for key in keys:
        mask[key + 1 :, key] += bias
    return mask[None, None]


def logits(model: Any, ids: tuple[int, ...], mask: Tensor) -> Tensor:
    """[pos, vocab] by eager attention with this mask in all layers."""
    other = eager(model)
    with torch.no_grad(), masked(other, [mask] * N_LAYERS):
        return other(torch.tensor([ids]), use_cache=False).logits[0]


@pytest.mark.parametrize("row", ROWS)
def test_confidence_is_that_of_transformers_own_logits(kept: Looked, row: int) -> None:
    item, found = kept.items[row], kept.features[row]
    sequence = kept.sequence(item)
    mask = biased(len(sequence.ids), (), -math.inf)
    clean = torch.log_softmax(logits(kept.lm.model, sequence.ids, mask).double(), -1)
    places = range(sequence.answer_start, len(sequence.ids))
    said = [float(clean[place - 1, sequence.ids[place]]) for place in places]
    first = clean[sequence.answer_start - 1]
    others = first.clone()
    others[sequence.ids[sequence.answer_start]] = -torch.inf
    wanted = {
        "answer_tokens": len(said),
        "log_prob_mean": sum(said) / len(said),
        "log_prob_min": min(said),
        "log_prob_first": said[0],
        "margin_first": said[0] - float(others.max()),
        "entropy_mean": float(
            np.mean(
                [-(clean[place - 1].exp() * clean[place - 1]).sum() for place in places]
            )
        ),
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-4)
    assert item["confidence_mean"] == pytest.approx(found["log_prob_mean"], abs=1e-4)


@pytest.mark.parametrize("row", ROWS)
def test_p_true_is_asked_in_the_runs_prompt(kept: Looked, row: int) -> None:
    item, tokenizer = kept.items[row], kept.lm.tokenizer
    ask = "Question: {} Proposed answer: {}. Is the proposed answer true or false?\nAnswer:{}"
    text = "\n".join(
        [
            ask.format("What is the capital of Japan?", "Tokyo", " True"),
            ask.format("Who wrote Romeo and Juliet?", "Charles Dickens", " False"),
            ask.format("What is the chemical symbol of gold?", "Au", " True"),
            ask.format(item["question"], item["model_answer"].rstrip("."), " "),
        ]
    )
    ids = tokenizer(text)["input_ids"]
    assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        told = torch.log_softmax(kept.lm.model(torch.tensor([ids])).logits[0, -1], -1)
    true, false = (
        float(told[tokenizer.convert_tokens_to_ids(letter)]) for letter in "TF"
    )
    assert kept.features[row]["p_true"] == pytest.approx(true - false, abs=1e-4)


@pytest.mark.parametrize("alpha", [1, 3])
@pytest.mark.parametrize("part", ["question", "answer"])
def test_strengthened_attention_is_a_bias_on_the_scores(
    kept: Looked, part: str, alpha: int
) -> None:
    for row in ROWS:
        item = kept.items[row]
        sequence = kept.sequence(item)
        keys = (
            tuple(item["question_tokens"])
            if part == "question"
            else range(sequence.answer_start, len(sequence.ids))
        )
        mask = biased(len(sequence.ids), keys, math.log1p(alpha))
        wanted = watch(eager(kept.lm.model), sequence.ids, [mask] * N_LAYERS)[-1, MLP]
        found = kept.state(f"boost-{part}-{alpha}", row)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        assert (found - kept.state("clean", row)).abs().max() > 1e-3


@pytest.mark.parametrize("row", ROWS)
def test_states_of_other_texts_and_other_weights_are_transformers_own(
    kept: Looked, row: int
) -> None:
    item, tokenizer = kept.items[row], kept.lm.tokenizer
    sequence = kept.sequence(item)
    asked = watch(kept.lm.model, sequence.ids[: sequence.answer_start])[-1, MLP]
    torch.testing.assert_close(
        kept.state("question-only", row), asked, rtol=1e-4, atol=1e-4
    )
    alone = tokenizer(FEW_SHOT_TEMPLATE.text("") + " " + item["model_answer"])[
        "input_ids"
    ]
    torch.testing.assert_close(
        kept.state("answer-only", row),
        watch(kept.lm.model, tuple(alone))[-1, MLP],
        rtol=1e-4,
        atol=1e-4,
    )
    random = build_shape(
        kept.lm.model.config, torch.float32, torch.device("cpu")
    ).eval()
    torch.testing.assert_close(
        kept.state("random-weights", row),
        watch(random, sequence.ids)[-1, MLP],
        rtol=1e-4,
        atol=1e-4,
    )


def numbers(path: Path) -> dict[str, bytes]:
    """All that was kept for detectors, to the last byte."""
    names = [
        "states/facts/features.parquet",
        *(states_file("facts", name) for name in DETECTION_RUNS),
    ]
    return {
        name: (path / name).read_bytes() for name in names if (path / name).exists()
    }


def test_a_finished_run_that_is_asked_for_detection_alone_does_only_what_is_new_stopped_or_not(
    kept: Looked, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    recipe = small_run.recipe.model_copy(update={"keep": ("detection",)})
    with watching() as made:
        for name, moment in (
            (OWN_STEPS[0], "work"),
            (OWN_STEPS[1], "write"),
            (OWN_STEPS[2], "write"),
        ):
            with stopping(name, moment), pytest.raises(Stop):
                quick(recipe, out)
            open_finished(out)  # what was finished stays so
        (told,) = quick(recipe, out)
    assert [
        name
        for name in made
        if name not in ("facts/before-answer", "facts/answer-alone")
    ] == OWN_STEPS
    assert told.startswith("facts: detection of 80 items take ")
    assert numbers(out) == numbers(kept.path)
    assert {path.name for path in (out / "states" / "facts").iterdir()} == {
        Path(name).name for name in numbers(out)
    }
    with watching() as made:
        assert quick(recipe, out) == []
    assert made == []


def test_from_run_to_detector_to_a_scored_answer(kept: Looked, tmp_path: Path) -> None:
    """Nothing is lost on the way: an answer of the run is scored, through the model, as the kept states say."""
    names = ("probe+confidence", "mop")
    few = {"folds": 3, "seeds": 1, "tosses": 0, "resamples": 100, "device": "cpu"}
    detect(
        [kept.path], out=tmp_path / "detectors", detectors=names, bundles=names, **few
    )
    (source,) = read_runs(open_runs([kept.path]))
    for name in names:
        place = tmp_path / "detectors" / "bundles" / name
        trained = read_bundle(place)
        known = trained.fitted.log_odds(source.data.features)
        wanted = [
            trained.calibration.slope * known[row] + trained.calibration.intercept
            for row in ROWS
        ]
        detector = Detector.load(place)  # the bundle names its model
        asked = [
            rows()[int(kept.items[row]["item_id"].removeprefix("item-"))]
            for row in ROWS
        ]
        found = detector.score_questions(
            [question_from_row(row, "facts", 1) for row in asked]
        )
        np.testing.assert_allclose([one.log_odds for one in found], wanted, atol=1e-3)
        assert len({one.log_odds for one in found}) == len(ROWS)
        assert {one.verdict for one in found} <= {
            "true",
            "unsure",
            "false",
            "out-of-range",
        }


def test_states_go_to_the_device_where_they_fit(
    kept: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    monkeypatch.setattr(story, "_read", lambda *given: places.append(given[-1].type))
    for room in (2**40, 1):
        monkeypatch.setattr(story, "chunk_bytes", lambda device, room=room: room)
        read_runs(open_runs([kept.path]), device=torch.device("cuda"))
    assert places == ["cuda", "cpu"]
