"""The benchmark of scale: its passes, other bits, and bars that can be missed."""

import copy
from dataclasses import replace

import pytest
import torch

from anchorscope.bench import scale
from anchorscope.bench.options import Options
from anchorscope.bench.scale import Entrant, Timing
from anchorscope.bench.scale_passes import ANSWERS, DRAWS, KNOCKOUT, run_pass, scale_passes
from anchorscope.bench.workload import Workload
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.models.language_model import LanguageModel


def test_the_passes_are_those_of_a_run(tiny_llama, workload):
    passes = scale_passes(tiny_llama, workload, 0)
    cut = passes[KNOCKOUT]
    assert len(cut.variants) == 1 + DRAWS
    for control in cut.variants[1:]:
        for item, one in control.cuts.items():
            assert not set(one.keys) & set(workload.items[item].keys)
            assert min(one.keys) >= workload.shared
    found = run_pass(LocalExecutor(lambda: tiny_llama), cut)
    assert [len(one.states) for one in found.variants] == [3, 3, 1, 1, 1, 1]
    assert all(one.logits is not None for one in found.variants)


def test_other_bits_end_the_benchmark(tiny_llama: LanguageModel, workload: Workload):
    changed = copy.deepcopy(tiny_llama.model)
    with torch.no_grad():
        changed.get_input_embeddings().weight.mul_(1.001)
    passes = scale_passes(tiny_llama, workload, 0)
    one, same, other = (
        Entrant(name, 1, LocalExecutor(lambda lm=lm: lm), 0.0)
        for name, lm in (("local", tiny_llama), ("same", tiny_llama), ("other", replace(tiny_llama, model=changed)))
    )
    hashes = scale._take_turns([one, same], passes, 1, lambda text: None)
    assert hashes.keys() == passes.keys()
    assert all(len(taken) == 1 for taken in one.timings.values())
    with pytest.raises(UserError, match=r"^other gives other bits than local in the pass"):
        scale._take_turns([one, other], passes, 1, lambda text: None)


def timed(name: str, n_workers: int, rounds: list[float], own: float = 0.0) -> Entrant:
    one = Entrant(name, n_workers, None, 1.0)
    one.timings = {name: [Timing(seconds / 2, own * seconds / 2) for seconds in rounds] for name in (ANSWERS, KNOCKOUT)}
    return one


def test_ratios_are_taken_within_rounds_and_bars_can_be_missed():
    local, single = timed("local", 1, [10.0, 40.0, 10.0]), timed("processes:1", 1, [11.0, 44.0, 11.0], own=0.06)
    double = timed("processes:2", 2, [6.0, 22.0, 6.0], own=0.02)
    ratios = scale.ratios([local, single, double])
    assert ratios == {
        "processes:1 over local": pytest.approx(10 / 11),
        "processes:2 over processes:1": pytest.approx(11 / 6),
    }
    on_cpu = scale.judge([local, single, double], "cpu")
    assert [one["met"] for one in on_cpu] == [True, False, True]  # two workers; the coordinator's share, twice
    on_gpu = scale.judge([local, single], "cuda")
    assert [(one["bound"], one["met"]) for one in on_gpu] == [(0.95, False), (0.05, False)]
    slow = replace(double)
    slow.timings = timed("", 2, [10.0, 40.0, 10.0]).timings
    assert not scale.judge([single, slow], "cpu")[0]["met"]


def test_executors_where_nobody_says(monkeypatch):
    monkeypatch.setattr(scale, "cores", lambda: 1)
    assert scale.default_executors("cpu") == ("local", "processes:1")
    monkeypatch.setattr(scale, "visible_gpus", lambda: ["0", "1"])
    assert scale.default_executors("cuda") == ("local", "processes:1", "processes:2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"executors": ("local",)}, "--executors local is part of the benchmark of scale; add --scale."),
        ({"scale": True, "executors": ("slurm",)}, "Executor 'slurm' is not known"),
        ({"scale": True, "executors": ("ray=x",)}, "Executor 'ray=x': after = the number of workers is wanted"),
        ({"scale": True, "executors": ("processes:2=3",)}, "Executor 'processes:2' and --workers 3 disagree"),
        ({"scale": True, "threads": 0}, "--threads 0 is too small; allowed: 1 or more."),
    ],
)
def test_bad_options_of_scale(given, message):
    with pytest.raises(UserError) as error:
        Options(**given)
    assert str(error.value).startswith(message)
