"""A worker: states and scores of every item in its own slot, and no model before it is due."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import CLEAN, SITES, Cut, TokenSequence, Variant
from anchorscope.execute import ray_executor
from anchorscope.execute import worker as worker_module
from anchorscope.execute.choose import Choice, choose
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.numerics import numerics_of
from anchorscope.execute.ray_executor import RayExecutor, WarmModels, WorkerJob, pack
from anchorscope.execute.run_passes import run_answers, run_saliency, run_states
from anchorscope.execute.worker import Part, Shard, StatesPart, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import OutOfFoldProbes, StatesPass, plan_answers, plan_saliency
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.progress import Silent
from made_items import planner_of
from small_shards import small_pass
from tiny_models import byte_tokenizer, tiny_model

N, N_FOLDS, N_PREFIX = 20, 2, 5


def make_sequences() -> list[TokenSequence]:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(N):
        ids = (7, 8, 9, 10, 11, *rng.integers(0, 256, int(rng.integers(8, 20))).tolist())
        found.append(TokenSequence(ids, len(ids) - 3, (len(ids) - 1, len(ids) - 2)))
    return found


def make_probes(lm: LanguageModel) -> OutOfFoldProbes:
    shape = (2, N_FOLDS, lm.n_layers)
    sets = []
    for position in range(2):
        generator = torch.Generator().manual_seed(position)
        weights = torch.randn(len(SITES), *shape, lm.d_model, generator=generator)
        sets.append(
            tuple(ProbeSet(weight, torch.zeros(shape), np.ones(shape), np.ones(shape), ()) for weight in weights)
        )
    return OutOfFoldProbes(tuple(sets), np.arange(N) % N_FOLDS)


def make_work(lm: LanguageModel, batch_tokens: int = 200, compiled: bool = False) -> StatesPass:
    """Clean, and every second item cut; both keep states at two places."""
    sequences = make_sequences()
    variants = [CLEAN, Variant({item: Cut((6, 7)) for item in range(1, N, 2)})]
    planned = planner_of(lm, batch_tokens).states(
        "some", sequences, sequences[0].ids[:N_PREFIX], variants, compiled=compiled
    )
    places = ((1, 2), (0, 0))
    return replace(planned, probes=make_probes(lm), keep=(places, places), log_probs=True)


def run_part(worker: Worker, shard: Shard) -> StatesPart:
    part: Part = worker.run(shard, Silent())
    assert isinstance(part, StatesPart)
    return part


@pytest.fixture(scope="module")
def whole(tiny_llama: LanguageModel) -> StatesPart:
    return run_part(Worker(tiny_llama), make_work(tiny_llama))


def test_every_item_is_in_its_own_slot(tiny_llama: LanguageModel, whole: StatesPart) -> None:
    work = make_work(tiny_llama)
    for index, variant in enumerate(work.variants):
        part = whole.variants[index]
        assert part.items.tolist() == [item for item in range(N) if variant.runs(item)]
        assert part.states is not None
        assert part.states.shape == (2, tiny_llama.n_layers, len(part.items), tiny_llama.d_model)
        for slot, item in enumerate(part.items.tolist()):  # each alone
            alone = run_part(Worker(tiny_llama), replace(work, batches=((item,),))).variants[index]
            assert alone.items.tolist() == [item]
            assert alone.states is not None
            assert torch.allclose(part.states[:, :, slot], alone.states[:, :, 0], atol=1e-4)
            assert part.logits is not None
            assert alone.logits is not None
            assert part.logits[slot] == pytest.approx(alone.logits[0], abs=1e-3)
    first, second = (one.states for one in whole.variants)
    assert first is not None
    assert second is not None
    assert not torch.allclose(first[:, :, 1::2], second, atol=1e-2)  # the cut was made


def test_kept_places_are_in_the_order_in_which_they_were_asked_for(tiny_llama: LanguageModel) -> None:
    work, worker = make_work(tiny_llama), Worker(tiny_llama)
    places = [(position, site) for position in range(2) for site in range(len(SITES))]
    everything = run_part(worker, replace(work, keep=(tuple(places),))).variants[0].states
    assert everything is not None
    for keep in (((1, 2), (0, 0)), ((0, 1),), ((0, 2), (1, 0), (1, 1))):
        found = run_part(worker, replace(work, keep=(keep,))).variants
        assert found[0].states is not None
        assert torch.equal(found[0].states, everything[[places.index(place) for place in keep]])
        assert found[1].states is None  # nothing is kept of a variant that is not spoken of


def test_scores_are_those_of_the_states_by_each_items_own_fold(tiny_llama: LanguageModel, whole: StatesPart) -> None:
    probes = make_probes(tiny_llama)
    for part in whole.variants:
        assert part.states is not None
        assert part.logits is not None
        for place, (position, site) in enumerate(((1, 2), (0, 0))):
            weight = probes.sets[position][site].weight[:, probes.folds[part.items]]  # [probe, item, layer, d_model]
            wanted = torch.einsum("lid,pild->ipl", part.states[place], weight)
            assert part.logits[:, position, site] == pytest.approx(wanted.numpy(), abs=1e-2)


def test_only_the_log_odds_that_are_wanted_come_back(tiny_llama: LanguageModel, whole: StatesPart) -> None:
    work = make_work(tiny_llama)
    assert work.probes is not None
    one = run_part(Worker(tiny_llama), replace(work, probes=replace(work.probes, only=(1, 2, 1))))
    none = run_part(Worker(tiny_llama), replace(work, probes=None))
    for found, silent, wanted in zip(one.variants, none.variants, whole.variants, strict=True):
        assert found.logits is not None
        assert wanted.logits is not None
        assert np.array_equal(found.logits, wanted.logits[:, 1:2, 2:3, 1:2])  # the same batches, so the same bits
        assert silent.logits is None
        assert silent.states is not None


def test_keys_and_values_of_a_shared_beginning_are_computed_once(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, ...]] = []
    compute = worker_module.compute_prefix

    def counted(lm: LanguageModel, ids: tuple[int, ...]) -> object:
        made.append(ids)
        return compute(lm, ids)

    monkeypatch.setattr(worker_module, "compute_prefix", counted)
    worker, work = Worker(tiny_llama), make_work(tiny_llama)
    for shard in (*work.shards(), replace(work, prefix=work.prefix[:1]), work):
        run_part(worker, shard)
    assert made == [work.prefix, work.prefix[:1]]


class Counting:
    """Loads a model when asked, and counts how often."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.loads = lm, 0

    def __call__(self) -> LanguageModel:
        self.loads += 1
        return self.lm


def test_no_model_is_loaded_before_the_first_shard_and_one_for_all(tiny_llama: LanguageModel) -> None:
    load = Counting(tiny_llama)
    executor = LocalExecutor(load)
    work = make_work(tiny_llama)
    assert executor.map([], Silent()) == []
    assert list(executor.divide(work)) == [work]
    assert load.loads == 0  # nothing was asked of it yet
    assert len(executor.map(work.shards(), Silent())) == len(work.batches) > 1
    assert executor.describe().planner.n_layers == tiny_llama.n_layers
    run_states(executor, work, Silent())
    assert load.loads == 1


def test_answers_that_are_given_need_no_pass_and_others_are_generated(tiny_llama: LanguageModel) -> None:
    questions = [
        Question(
            "facts",
            f"item-{index}",
            f"What is {index}?",
            ("x",),
            model_answer="Bo x" if index % 2 else None,
            truthful=True if index % 2 else None,
        )
        for index in range(4)
    ]
    work = plan_answers(questions, tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, 5, 400)
    answers = run_answers(LocalExecutor(lambda: tiny_llama), work, Silent())
    assert [answer.text for answer in answers[1::2]] == ["Bo x", "Bo x"]
    assert all(answer.log_probs is None for answer in answers[1::2])
    assert all(answer.log_probs is not None for answer in answers[::2])
    assert all(0 < len(answer.ids) <= 5 or answer.status != "answered" for answer in answers[::2])


def test_saliency_is_of_the_probe_at_each_items_own_layer(tiny_llama: LanguageModel) -> None:
    sequences = tuple(replace(one, read_at=one.read_at[:1]) for one in make_sequences()[:6])
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(6, tiny_llama.d_model, generator=generator)
    work = plan_saliency(
        planner_of(tiny_llama, 400),
        sequences,
        sequences[0].ids[:N_PREFIX],
        {"question": ((6, 7),) * 6},
        "mlp",
        (3, 2, 1, 3, 2, 1),
        weight,
        torch.zeros(6),
    )
    assert work.batches == ((0, 3), (4, 1), (5, 2))
    executor = LocalExecutor(lambda: tiny_llama)
    whole = run_saliency(executor, work, Silent()).of("question")
    for item in range(6):  # each alone: nothing of another item's probe or layer comes in
        own = slice(item, item + 1)
        one = replace(
            work,
            sequences=sequences[own],
            keys={"question": ((6, 7),)},
            layers=work.layers[own],
            weight=weight[own],
            bias=torch.zeros(1),
            batches=((0,),),
        )
        alone = run_saliency(executor, one, Silent()).of("question")
        assert whole[item].sum() > 0
        n_layers = alone.shape[-2]
        assert whole[item][..., :n_layers, :] == pytest.approx(alone[0], rel=1e-3, abs=1e-6)
    other = run_saliency(executor, replace(work, layers=(1, 2, 3, 1, 2, 3)).replanned(400, 4), Silent()).of("question")
    assert not np.allclose(other[0], whole[0])
    assert np.allclose(other[1], whole[1], atol=1e-5)


def test_a_shard_in_which_nobody_has_the_first_of_many_cuts_has_no_log_odds_of_it(tiny_llama: LanguageModel) -> None:
    sequences, cut = make_sequences(), Cut((6, 7))
    variants = [Variant({0: cut}), *(Variant(dict.fromkeys(range(N), cut)) for _ in range(8))]
    work = planner_of(tiny_llama, 200).states("some", sequences, sequences[0].ids[:N_PREFIX], variants)
    shards = replace(work, probes=make_probes(tiny_llama)).shards()
    parts = [Worker(tiny_llama).run(shard, Silent()) for shard in shards]
    assert any(isinstance(part, StatesPart) and part.variants[0].logits is None for part in parts)


@pytest.mark.parametrize(
    ("device", "workers", "machines", "wanted"),
    [
        ("cpu", 2, (8,), 0),
        ("cuda", 2, (8,), 1),
        ("balanced", 2, (8,), 4),
        ("balanced", None, (8,), 8),
        ("balanced", None, (8, 8), 8),  # a worker is on one machine
        ("balanced", 1, (4, 4), 4),
        ("balanced", 4, (2,), 1),
    ],
)
def test_gpus_that_a_worker_asks_for(device: str, workers: int | None, machines: tuple[int, ...], wanted: int) -> None:
    class Cluster:
        def cluster_resources(self) -> dict[str, float]:
            return {"GPU": float(sum(machines))}

        def nodes(self) -> list[dict[str, Any]]:
            return [{"Alive": True, "Resources": {"GPU": float(gpus)}} for gpus in machines]

    group = RayExecutor(choose("ray", workers), WorkerJob("shape:smollm2-135m", device=device), print)
    assert group._gpus(Cluster()) == wanted


def test_a_model_is_loaded_once_for_runs_that_follow_each_other(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Counting(tiny_llama)
    monkeypatch.setattr(ray_executor, "load", lambda *options: load())
    warm, first, second = WarmModels(), WorkerJob("first"), WorkerJob("second")
    description = warm.executor(Choice(), first, Silent()).describe()
    assert description.numerics == numerics_of(tiny_llama)
    assert warm.executor(Choice(), first, Silent()).describe() is description
    assert load.loads == 1
    for job in (second, first):
        warm.executor(Choice(), job, Silent()).describe()
    assert load.loads == 3, "one model is held at a time"


def test_less_than_a_hundredth_of_the_states_travels(tmp_path: Path) -> None:
    """At a width at which it has to: everything else that a pass brings does not grow with the width."""
    lm = wrap(tiny_model("llama", hidden_size=1024), byte_tokenizer())
    work = small_pass(lm, 6)
    keep = tuple((position, site) for position in range(2) for site in range(len(SITES)))
    work = replace(work, keep=(keep, keep), batches=(tuple(range(len(work.sequences))),))
    assert work.probes is not None
    worker, travelled, states = Worker(lm), 0, 0
    for shard in work.writing_shards(tmp_path, lm.d_model, "float32", lm.n_layers):
        assert shard.probes is not None
        travelled += len(pack(replace(shard, probes=replace(shard.probes, sets=()))))
        travelled += len(pack(worker.run(shard, Silent())))
        states += sum(rows.nbytes for rows in shard.into if rows is not None)
    assert states == 6 * lm.n_layers * lm.d_model * 4 * (len(work.run_by(0)) + len(work.run_by(1)))
    assert 0 < travelled <= 0.01 * states
