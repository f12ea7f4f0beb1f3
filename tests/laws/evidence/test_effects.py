"""Effects: states scored by probes that never saw the item's group, no cut that silently did nothing; the clean run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.answers.generate import Answer
from anchorscope.engine.sequences import SITES
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.effects import (
    CutStates,
    Effect,
    Scoring,
    measure,
    refuse_no_op,
    refuse_no_ops,
    run_clean,
    with_log_probs,
)
from anchorscope.execute.executor import LocalExecutor
from anchorscope.interventions.cuts import INTERVENTIONS, with_draws
from anchorscope.interventions.intervention import Intervention
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_cut
from anchorscope.probes.crossfit import make_splits, refit_logits, score_states
from anchorscope.progress import Silent
from made_items import make_setting, planner_of, random_items, random_probes

N, N_FOLDS = 30, 3


class Bench:
    """A tiny model, probes, and clean states and scores of all items."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.items, self.executor = (
            lm,
            random_items(N),
            LocalExecutor(lambda: lm),
        )
        self.setting = make_setting(("final", "answer_end"))
        self.folds = np.arange(N) % N_FOLDS
        self.sets = tuple(
            tuple(random_probes(lm, 10 * q + s, N_FOLDS) for s in range(len(SITES)))
            for q in range(2)
        )
        self.scoring = Scoring(self.sets, self.folds)
        planner, positions = planner_of(lm, 200), self.setting.positions
        found = run_clean(
            self.executor,
            planner,
            self.items,
            positions,
            Silent(),
            compiled=False,
            edges="all",
            site=0,
        )
        self.states = found.states
        self.clean = score_states(self.scoring.scorer("cpu"), self.states)

    def run(self, intervention: Intervention) -> Effect:
        return self.run_all([intervention])[0][0]

    def run_all(
        self, interventions: list[Intervention], batch_tokens: int = 200
    ) -> tuple[list[Effect], CutStates]:
        planned = [plan_cut(one, self.items, self.setting) for one in interventions]
        passes = passes_of(
            planned, self.items, self.setting, planner_of(self.lm, batch_tokens)
        )
        return measure(
            self.executor,
            passes,
            self.scoring,
            self.setting,
            lambda one: [(1, 2)],
            Silent(),
        )


@pytest.fixture(scope="module")
def bench(tiny_llama: LanguageModel) -> Bench:
    return Bench(tiny_llama)


def test_cutting_nothing_changes_nothing_whatever_the_batches(bench: Bench) -> None:
    (effect,), kept = bench.run_all([INTERVENTIONS["none"]], batch_tokens=60)
    assert effect.n_cut.tolist() == [0] * N
    assert not kept
    assert effect.logits == pytest.approx(bench.clean, abs=1e-4)


def test_a_cut_without_any_effect_is_refused(bench: Bench) -> None:
    effect = bench.run(INTERVENTIONS["knockout"])
    refuse_no_op(effect, bench.clean)
    silent = effect.logits.copy()
    silent[4] = bench.clean[4]
    with pytest.raises(
        InterventionNotApplied, match="knockout: 1 items lost attention edges"
    ):
        refuse_no_op(replace(effect, logits=silent), bench.clean)
    # Where nothing was to be cut nothing has to change, and one changed score is a sign of life.
    refuse_no_op(
        replace(effect, logits=silent, n_cut=np.where(np.arange(N) == 4, 0, 3)),
        bench.clean,
    )
    silent[4, 0, 0, 0] += 1e-6 + abs(silent[4, 0, 0, 0])
    refuse_no_op(replace(effect, logits=silent), bench.clean)


def test_a_refit_never_scores_an_item_with_a_probe_that_saw_it(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(60) < 0.5
    groups, folds = np.arange(60), np.arange(60) % N_FOLDS
    states = torch.as_tensor(rng.normal(size=(2, 60, 6)), dtype=torch.float32)
    states[1, :, 0] += torch.as_tensor(np.where(labels, 4.0, -4.0))
    splits = make_splits(labels, groups, folds, seed=0)
    found = refit_logits("knockout", states, splits, Silent())
    assert found.shape == (2, 60)
    assert ((found[1] > 0) == labels).mean() > 0.95
    # Other labels in a fold change the probes of the other folds only.
    flipped = np.where(folds == 1, ~labels, labels)
    other = refit_logits("knockout", states, replace(splits, labels=flipped), Silent())
    assert other[:, folds == 1] == pytest.approx(found[:, folds == 1], abs=1e-5)
    assert np.abs(other[:, folds != 1] - found[:, folds != 1]).max() > 0.1


def test_interventions_that_run_together_give_what_each_gives_alone(
    bench: Bench,
) -> None:
    names = ["random", "knockout", "direct", "zeroing", "template", "none"]
    together, kept = bench.run_all([INTERVENTIONS[name] for name in names])
    assert sorted(one.intervention for one in together) == sorted(names)
    for found in together:
        (alone,), states = bench.run_all([INTERVENTIONS[found.intervention]])
        assert (
            found.variant
            == alone.variant
            == ("direct" if found.intervention == "direct" else "all")
        )
        assert found.items.tolist() == alone.items.tolist()
        assert found.n_cut.tolist() == alone.n_cut.tolist()
        assert found.logits == pytest.approx(alone.logits, abs=1e-4)
        assert set(states) == {found.intervention} & {"random", "knockout"}
        for name in states:
            assert torch.allclose(kept[name], states[name], atol=1e-4)


def test_of_a_control_drawn_several_times_all_states_are_kept_and_the_log_odds_of_the_first(
    bench: Bench,
) -> None:
    draws = with_draws([INTERVENTIONS["knockout"], INTERVENTIONS["random"]], 3)
    effects, states = bench.run_all(draws)
    assert [one.intervention for one in effects] == ["knockout", "random"]
    assert set(states) == {"knockout", "random", "random 2", "random 3"}
    for draw in draws[1:]:
        planned = [plan_cut(draw, bench.items, bench.setting)]
        passes = passes_of(
            planned, bench.items, bench.setting, planner_of(bench.lm, 200)
        )
        _, alone = measure(
            bench.executor,
            passes,
            bench.scoring,
            bench.setting,
            lambda one: [(1, 2)],
            Silent(),
        )
        assert torch.allclose(states[draw.draw_name], alone[draw.draw_name], atol=1e-4)
    assert (states["random"] - states["random 2"]).abs().max() > 0.01
    assert effects[1].logits == pytest.approx(
        bench.run(INTERVENTIONS["random"]).logits, abs=1e-4
    )


def test_a_cut_that_does_no_more_than_noise_is_refused(bench: Bench) -> None:
    # Batches differ from the clean pass's, so that a cut that was never made shows as noise, not as equal bits.
    (cut, still), _ = bench.run_all([INTERVENTIONS["knockout"], INTERVENTIONS["none"]])
    refuse_no_ops([cut, still], bench.clean)
    noise = (
        np.random.default_rng(0).normal(0, 1e-4, cut.logits.shape).astype(np.float32)
    )
    quiet = replace(cut, logits=bench.clean[cut.items] + noise)
    loud = replace(still, logits=bench.clean[still.items] + 2 * noise[still.items])
    with pytest.raises(
        InterventionNotApplied,
        match=r"knockout: scores change by .* no cut can be told from noise",
    ):
        refuse_no_ops([quiet, loud], bench.clean)


def test_log_probs_are_the_models_own_of_every_token_of_the_answer(
    tiny_llama: LanguageModel,
) -> None:
    items, executor, planner = (
        random_items(12),
        LocalExecutor(lambda: tiny_llama),
        planner_of(tiny_llama, 60),
    )
    clean = run_clean(
        executor,
        planner,
        items,
        ("final", "answer_before"),
        Silent(),
        compiled=False,
        edges="all",
        site=0,
    )
    for item, found in zip(items, clean.log_probs, strict=True):
        ids, start = item.located.input_ids, item.located.answer_start
        with torch.inference_mode():
            logits = tiny_llama.model(torch.tensor([ids])).logits[0]
        known = torch.log_softmax(logits.float(), dim=-1)
        wanted = [
            float(known[place - 1, ids[place]]) for place in range(start, len(ids))
        ]
        assert found == pytest.approx(wanted, abs=1e-3)


def test_answers_keep_their_own_log_probs_and_others_take_those_of_the_pass() -> None:
    own = Answer("a", (1,), (-0.5,), "answered")
    given, empty = (
        replace(own, log_probs=None),
        replace(own, log_probs=None, status="empty"),
    )
    found = with_log_probs([own, given, empty], [(-9.0,), (-1.5,), ()])
    assert [one.log_probs for one in found] == [(-0.5,), (-1.5,), None]
