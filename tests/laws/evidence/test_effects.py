"""Effects: states scored by the probes that never saw the item's group, and no cut that silently did nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.engine.sequences import SITES
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.effects import (
    CutStates,
    Effect,
    Scoring,
    measure,
    measured_places,
    refuse_no_op,
    refuse_no_ops,
    run_clean,
)
from anchorscope.execute.executor import LocalExecutor
from anchorscope.interventions.cuts import INTERVENTIONS, with_draws
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_cut
from anchorscope.probes.crossfit import ProbeSet, Scorer, make_splits, refit_logits, score_states
from anchorscope.progress import Silent
from made_items import make_item, make_setting, planner_of

N, N_LAYERS, D, N_FOLDS, N_PREFIX = 30, 4, 32, 3, 5


def random_probes(seed: int) -> ProbeSet:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, N_FOLDS, N_LAYERS, D, generator=generator)
    bias = torch.randn(3, N_FOLDS, N_LAYERS, generator=generator)
    return ProbeSet(weight, bias, np.ones((3, N_FOLDS, N_LAYERS)), np.ones((3, N_FOLDS, N_LAYERS)), ())


@pytest.fixture(scope="module")
def items() -> list[Item]:
    rng = np.random.default_rng(0)
    found = []
    for index in range(N):
        ids = (7, 8, 9, 10, 11, *rng.integers(0, 256, int(rng.integers(12, 20))).tolist())
        found.append(make_item(ids, len(ids) - 3, (6, 7, 8 + index % 3), N_PREFIX, name=f"item-{index}"))
    return found


class Bench:
    """A tiny model, probes, and clean states and scores of all items."""

    def __init__(self, lm: LanguageModel, items: list[Item]) -> None:
        self.lm, self.items, self.executor = lm, items, LocalExecutor(lambda: lm)
        self.setting = make_setting(("final", "answer_end"))
        self.folds = np.arange(N) % N_FOLDS
        self.sets = tuple(tuple(random_probes(10 * q + s) for s in range(len(SITES))) for q in range(2))
        self.scoring = Scoring(self.sets, self.folds)
        planner, positions = planner_of(lm, 200), self.setting.positions
        found = run_clean(self.executor, planner, items, positions, Silent(), compiled=False, edges="all", site=0)
        self.states = found.clean.states
        self.clean = score_states(self.scoring.scorer("cpu"), self.states)

    def run(self, intervention: Intervention, batch_tokens: int = 200) -> Effect:
        return self.run_all([intervention], batch_tokens)[0][0]

    def run_all(self, interventions: list[Intervention], batch_tokens: int = 200) -> tuple[list[Effect], CutStates]:
        planned = [plan_cut(one, self.items, self.setting) for one in interventions]
        passes = passes_of(planned, self.items, self.setting, planner_of(self.lm, batch_tokens))
        return measure(self.executor, passes, self.scoring, self.setting, lambda one: [(1, 2)], Silent())


@pytest.fixture(scope="module")
def bench(tiny_llama: LanguageModel, items: list[Item]) -> Bench:
    return Bench(tiny_llama, items)


def test_clean_scores_are_those_of_each_items_own_fold(bench: Bench) -> None:
    assert bench.clean.shape == (N, 2, len(SITES), 3, N_LAYERS)
    for item, q, s, p, layer in [(0, 0, 0, 0, 0), (4, 1, 2, 1, 3), (29, 0, 1, 2, 2), (17, 1, 0, 0, 1)]:
        probes = bench.sets[q][s]
        state = bench.states[q, s, layer, item].float()
        wanted = state @ probes.weight[p, bench.folds[item], layer] + probes.bias[p, bench.folds[item], layer]
        assert bench.clean[item, q, s, p, layer] == pytest.approx(float(wanted), abs=1e-4)


def test_states_under_the_knockout_are_kept_at_the_headline_place_only(bench: Bench) -> None:
    (effect,), kept = bench.run_all([INTERVENTIONS["knockout"]])
    assert set(kept) == {"knockout"}
    (states,) = kept["knockout"]
    assert states.shape == (N_LAYERS, N, D)
    probes = bench.sets[1][2]
    for item in (0, 7, 23):
        wanted = (states[:, item].float() * probes.weight[0, bench.folds[item]]).sum(-1)
        wanted = wanted + probes.bias[0, bench.folds[item]]
        assert effect.logits[item, 1, 2, 0] == pytest.approx(wanted.numpy(), abs=1e-4)


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
    with pytest.raises(InterventionNotApplied, match="knockout: 1 items lost attention edges"):
        refuse_no_op(replace(effect, logits=silent), bench.clean)
    # Where nothing was to be cut nothing has to change, and one changed score is a sign of life.
    refuse_no_op(replace(effect, logits=silent, n_cut=np.where(np.arange(N) == 4, 0, 3)), bench.clean)
    silent[4, 0, 0, 0, 0] += 1e-6 + abs(silent[4, 0, 0, 0, 0])
    refuse_no_op(replace(effect, logits=silent), bench.clean)


def test_places_hold_the_scores_of_their_own_site_and_position(bench: Bench) -> None:
    groups, labels = np.arange(N), np.arange(N) % 2 == 0
    splits = make_splits(labels, groups, bench.folds, seed=0)
    named = {f"{site}/{q}": bench.sets[i][s] for i, q in enumerate("xy") for s, site in enumerate(SITES)}
    effects = [bench.run(INTERVENTIONS["knockout"]), bench.run(replace(INTERVENTIONS["none"], max_items=9))]
    places = measured_places(splits, groups, ("x", "y"), named, bench.clean, effects)
    assert set(places) == {(site, position) for site in SITES for position in "xy"}
    measured = places["mlp", "y"]
    assert measured.before[2, 3, 11] == bench.clean[11, 1, 1, 2, 3]
    assert measured.after["knockout"][1, 0, 5] == effects[0].logits[5, 1, 1, 1, 0]
    assert measured.after["none"].shape == (3, N_LAYERS, 9)
    assert measured.ran["none"].tolist() == effects[1].items.tolist()


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


def test_a_batch_that_is_run_again_for_lack_of_memory_counts_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = [INTERVENTIONS["knockout"], INTERVENTIONS["random"]]
    wanted, wanted_states = bench.run_all(together)
    score, calls = Scorer.score, []

    def short_of_memory(self: Scorer, items: list[int], states: torch.Tensor) -> torch.Tensor:
        calls.append(len(items))
        if len(calls) == 2:  # the first batch's second intervention: the first one's scores are there already
            raise torch.OutOfMemoryError
        return score(self, items, states)

    monkeypatch.setattr(Scorer, "score", short_of_memory)
    found, states = bench.run_all(together, batch_tokens=400)
    assert calls[0] > calls[2]  # halved
    for one, other in zip(found, wanted, strict=True):
        assert one.items.tolist() == other.items.tolist() == list(range(N))
        assert one.n_cut.tolist() == other.n_cut.tolist()
        assert one.logits == pytest.approx(other.logits, abs=1e-4)
    assert set(states) == set(wanted_states) == {"knockout", "random"}
    for name in states:
        assert torch.allclose(states[name], wanted_states[name], atol=1e-4)


def test_interventions_that_run_together_give_what_each_gives_alone(bench: Bench) -> None:
    names = ["random", "knockout", "direct", "zeroing", "template", "none"]
    together, kept = bench.run_all([INTERVENTIONS[name] for name in names])
    assert sorted(one.intervention for one in together) == sorted(names)
    for found in together:
        (alone,), states = bench.run_all([INTERVENTIONS[found.intervention]])
        assert found.variant == alone.variant == ("direct" if found.intervention == "direct" else "all")
        assert found.items.tolist() == alone.items.tolist()
        assert found.n_cut.tolist() == alone.n_cut.tolist()
        assert found.logits == pytest.approx(alone.logits, abs=1e-4)
        assert set(states) == {found.intervention} & {"random", "knockout"}
        for name in states:
            assert torch.allclose(kept[name], states[name], atol=1e-4)


def test_of_a_control_drawn_several_times_all_states_are_kept_and_the_log_odds_of_the_first(bench: Bench) -> None:
    draws = with_draws([INTERVENTIONS["knockout"], INTERVENTIONS["random"]], 3)
    effects, states = bench.run_all(draws)
    assert [one.intervention for one in effects] == ["knockout", "random"]
    assert set(states) == {"knockout", "random", "random 2", "random 3"}
    for draw in draws[1:]:
        planned = [plan_cut(draw, bench.items, bench.setting)]
        passes = passes_of(planned, bench.items, bench.setting, planner_of(bench.lm, 200))
        _, alone = measure(bench.executor, passes, bench.scoring, bench.setting, lambda one: [(1, 2)], Silent())
        assert torch.allclose(states[draw.draw_name], alone[draw.draw_name], atol=1e-4)
    assert (states["random"] - states["random 2"]).abs().max() > 0.01
    assert effects[1].logits == pytest.approx(bench.run(INTERVENTIONS["random"]).logits, abs=1e-4)


def test_an_effect_tells_from_how_many_tokens_was_drawn_and_what_attention_was_taken(bench: Bench) -> None:
    (drawn,), _ = bench.run_all([INTERVENTIONS["random"]])
    assert drawn.n_candidates is not None
    assert drawn.n_candidates.tolist() == [item.located.answer_start - N_PREFIX - 3 for item in bench.items]
    assert drawn.attention_ratio is not None
    assert np.median(np.abs(drawn.attention_ratio - 1)) < 0.05
    (knockout,), _ = bench.run_all([INTERVENTIONS["knockout"]])
    assert knockout.n_candidates is None
    assert knockout.attention_ratio is None  # nobody asked for it


def test_a_cut_that_does_no_more_than_noise_is_refused(bench: Bench) -> None:
    # Batches differ from the clean pass's, so that a cut that was never made shows as noise, not as equal bits.
    (cut, still), _ = bench.run_all([INTERVENTIONS["knockout"], INTERVENTIONS["none"]])
    refuse_no_ops([cut, still], bench.clean)
    noise = np.random.default_rng(0).normal(0, 1e-4, cut.logits.shape).astype(np.float32)
    quiet = replace(cut, logits=bench.clean[cut.items] + noise)
    loud = replace(still, logits=bench.clean[still.items] + 2 * noise[still.items])
    with pytest.raises(InterventionNotApplied, match=r"knockout: scores change by .* no cut can be told from noise"):
        refuse_no_ops([quiet, loud], bench.clean)
