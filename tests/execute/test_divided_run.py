"""A whole run whose every pass is divided among workers gives every file that one process gives, to the last byte."""

from pathlib import Path

import pytest
from pass_cases import build_sensitive

from anchorscope.execute.worker import Worker
from anchorscope.plan.choices_pass import ChoicesPass
from anchorscope.plan.decoding import DecodePass
from anchorscope.plan.passes import AttentionPass, StatesPass
from anchorscope.recipe import Recipe, make_recipe
from anchorscope.steps.job import Job
from many_workers import ManyWorkers
from small_facts import liven, quick_options, rows, write_questions
from whole_runs import files_of, quick, tables_of


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Everything that runs the model, in small batches."""
    folder = tmp_path_factory.mktemp("divided")
    lm = build_sensitive()
    liven(lm.model)
    lm.model.save_pretrained(folder / "model")
    lm.tokenizer.save_pretrained(folder / "model")
    questions = write_questions(folder / "facts.jsonl", rows()[:64])
    options = quick_options(questions, model=str(folder / "model"))
    return make_recipe({**options, "batch_tokens": 1500, "keep": ("detection",)})


def numbers(out: Path) -> dict[str, bytes]:
    """Tables, probes, and all states and features that were kept."""
    kept = files_of(out / "states")
    assert kept
    return {**tables_of(out), **kept}


class Divided:
    """In the place of a job's executor: two workers, each with what it remembers of other shards."""

    def __init__(self) -> None:
        self.made: list[ManyWorkers] = []

    def __get__(self, job: Job | None, owner: object) -> ManyWorkers:
        assert job is not None
        if not self.made:
            self.made.append(ManyWorkers(job.lm, "mixed", [Worker(job.lm), Worker(job.lm)]))
        return self.made[0]


def test_a_run_in_shards_gives_the_same_files(recipe: Recipe, tmp_path: Path) -> None:
    quick(recipe, tmp_path / "whole")
    divided = Divided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "executor", divided)
        quick(recipe, tmp_path / "divided")
    wanted, found = numbers(tmp_path / "whole"), numbers(tmp_path / "divided")
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    shards = divided.made[0].shards
    assert all(len(shard.batches) == 1 for shard in shards)
    assert {type(shard) for shard in shards} == {StatesPass, AttentionPass, ChoicesPass, DecodePass}
    assert len(shards) > 2 * len({shard.title for shard in shards})
    assert any(isinstance(shard, StatesPass) and shard.random_weights for shard in shards)
