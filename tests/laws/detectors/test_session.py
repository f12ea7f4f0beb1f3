"""Scoring: the states of a run, alone as in a batch, from a saved bundle as before, and only on the right model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anchorscope.artefacts.run_folder import open_run
from anchorscope.datasets.catalog import open_dataset, parse_spec
from anchorscope.datasets.question import asked
from anchorscope.detectors.detector import Detector, ScoringSession
from anchorscope.detectors.features import ANSWER_TOKENS, CONFIDENCE, Needs
from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load as load_model
from anchorscope.models.wrapping import wrap
from anchorscope.pipeline import steps_of
from anchorscope.prepare import resolve
from anchorscope.progress import Silent
from anchorscope.recipe import make_recipe
from anchorscope.steps.job import DatasetRun, Job
from detector_cases import CLEAN, PAIRS, added, probe, setting_of, trained_on
from small_facts import quick_options, rows, write_questions
from tiny_models import build_tiny, byte_tokenizer, tiny_model

EVERYTHING = Needs(
    (CLEAN, ("question-only", "residual", 0), ("clean", "residual", 3)),
    (*CONFIDENCE, ANSWER_TOKENS),
)


@pytest.fixture(scope="module")
def session(tiny_llama: LanguageModel) -> ScoringSession:
    return ScoringSession(tiny_llama, setting_of(tiny_llama))


def close(found: object, wanted: object) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(wanted), rtol=1e-4, atol=1e-5
    )


def test_an_item_alone_has_the_features_of_a_batch(session: ScoringSession) -> None:
    items = session.items([asked(*pair, place) for place, pair in enumerate(PAIRS)])
    whole = session.features(items, EVERYTHING)
    assert set(whole.states) == set(EVERYTHING.states)
    assert tuple(whole.columns) == EVERYTHING.columns
    for place, pair in enumerate(PAIRS):
        (item,) = session.items([asked(*pair)])
        alone = session.features([item], EVERYTHING)
        for key, states in alone.states.items():
            close(states[0], whole.states[key][place])
        for name, column in alone.columns.items():
            close(column[0], whole.columns[name][place])


def test_scoring_reads_the_states_of_a_run(
    save_tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    model, questions = (
        save_tiny("llama"),
        write_questions(tmp_path / "facts.jsonl", rows()[:80]),
    )
    spec, lm = parse_spec(f"file:{questions}"), load_model(str(model))
    session = ScoringSession(lm, setting_of(lm))
    asked_again = {one.item_id: one for one in open_dataset(spec)}
    needs = Needs((("clean", "mlp", 1), ("clean", "mlp", 3)))
    recipe = resolve(make_recipe(quick_options(questions, model=str(model))))
    with open_run(tmp_path / "run", Silent()) as folder:
        run = DatasetRun(
            Job(folder, recipe, LocalExecutor(lambda: lm), Silent()),
            spec,
            steps_of(recipe),
        )
        items = session.items([asked_again[item.item_id] for item in run.used_items])
        assert [item.located for item in items] == [
            item.located for item in run.used_items
        ]
        assert len(items) == 80
        found = session.features(items, needs).states
        for layer in (1, 3):
            close(
                found["clean", "mlp", layer],
                run["clean-states"][0, SITES.index("mlp"), layer],
            )


def test_a_pass_stops_at_the_highest_layer_that_is_read(
    session: ScoringSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, run, ran = session.items([asked(*PAIRS[0])]), LanguageModel.run_block, []
    needs = Needs((("clean", "mlp", 1), ("clean", "residual", 0)))
    # the prompt's shared beginning runs once, through all layers
    session.features(items, needs)
    monkeypatch.setattr(
        LanguageModel,
        "run_block",
        lambda lm, layer, *rest: ran.append(layer) or run(lm, layer, *rest),
    )
    session.features(items, needs)
    assert set(ran) == {0, 1}
    ran.clear()
    session.features(
        items, Needs((("clean", "mlp", 1),), ("log_prob_min",))
    )  # the head stands above all layers
    assert set(ran) == {0, 1, 2, 3}


def test_verdicts_follow_the_risk_and_the_range(tiny_llama: LanguageModel) -> None:
    trained = trained_on(tiny_llama)
    detector = Detector(trained, tiny_llama)
    for one in detector.score_many(PAIRS):
        assert one.verdict == ("true" if one.truth_probability >= 0.45 else "unsure")
        assert one.warnings == ()
    unreachable = detector.score(*PAIRS[0], risk=0.05)
    assert unreachable.verdict == "unsure"
    assert "could not be reached" in unreachable.warnings[0]
    turned = replace(trained, thresholds=trained.thresholds[::-1])
    reached = Detector(turned, tiny_llama).score(*PAIRS[0])
    assert reached.verdict == detector.score(*PAIRS[0]).verdict
    assert reached.warnings == (
        "a risk of 0.05 could not be reached in training: 0.2 is used",
    )
    assert Detector(turned, tiny_llama).score(*PAIRS[0], risk=0.2).warnings == ()
    with pytest.raises(
        UserError,
        match=r"no threshold for the risk 0\.01 or a smaller one; it was trained for: 0\.2, 0\.05",
    ):
        detector.score(*PAIRS[0], risk=0.01)
    (used_instead,) = detector.score(*PAIRS[0], risk=0.9).warnings
    assert (
        used_instead
        == "no threshold accepts more at a risk of 0.9: that of 0.2 is used"
    )
    plain = Detector(replace(trained, thresholds=()), tiny_llama).score(*PAIRS[0])
    assert "no risk was measured" in plain.warnings[0]
    narrow = replace(trained, range=replace(trained.range, limit=0.0, longest=10))
    outside = Detector(narrow, tiny_llama).score(*PAIRS[0])
    assert outside.verdict == "out-of-range"
    assert outside.warnings[0].startswith("context: ")
    assert outside.log_odds == pytest.approx(detector.score(*PAIRS[0]).log_odds)


def test_another_model_tokenizer_or_prompt_is_refused(
    tiny_llama: LanguageModel,
) -> None:
    trained = trained_on(tiny_llama)

    def refused(lm: LanguageModel, message: str) -> None:
        with pytest.raises(UserError, match=message) as told:
            Detector(trained, lm)
        assert "\n" not in str(told.value)

    refused(
        build_tiny("qwen2"),
        "trained on model 'tiny llama' and does not fit 'tiny qwen2': its weights are others",
    )
    refused(
        wrap(tiny_model("llama", num_hidden_layers=3), byte_tokenizer()),
        "3 layers of width 32 instead of 4 of 32",
    )
    other = tiny_model("llama")
    with torch.no_grad():
        other.lm_head.weight[7, 3] += 1e-3
    refused(
        wrap(other, byte_tokenizer()), "its weights are others; score with that model"
    )
    words = byte_tokenizer()
    words.add_tokens(["Paris"])
    refused(wrap(tiny_llama.model, words), "its tokenizer is another one")
    template = replace(trained.setting.template, head="Q: ")
    trained = replace(trained, setting=replace(trained.setting, template=template))
    refused(
        tiny_llama, r"its few-shot prompt is another one .* and anchorscope 0\.1\.0"
    )
    with pytest.raises(UserError, match="needs its tokenizer"):
        Detector.load(trained, tiny_llama.model)


def test_what_cannot_be_measured_of_a_new_answer_is_refused(
    tiny_llama: LanguageModel,
) -> None:
    for fitted, message in (
        (
            probe(("random", "mlp", 2)),
            "states of the run 'random', not measured of new answers",
        ),
        (probe(("knockout", "mlp", 2)), "the run 'knockout'"),
        (
            probe(("clean", "mlp", 9)),
            "site 'mlp' of layer 9; the model has .* layers 0 to 3",
        ),
        (
            added((probe(),), ("relation",)),
            "reads 'relation', not measured of new answers",
        ),
    ):
        with pytest.raises(UserError, match=message):
            Detector(trained_on(tiny_llama, fitted=fitted), tiny_llama)
