"""The next token's log-probabilities are transformers' own, however prompts are batched and dealt out."""

import copy
import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from anchorscope.engine.batching import Budget
from anchorscope.engine.choices import choice_log_probs
from anchorscope.errors import UserError
from anchorscope.execute.parts import Part
from anchorscope.execute.run_passes import run_choices
from anchorscope.execute.worker import Shard, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.choices_pass import plan_choices
from anchorscope.progress import Progress, Silent
from engine_cases import SHARED, make_items, no_prefix, shared_prefix

CHOICES = (3, 250, 17)
PROMPTS = [item.ids for item in make_items()]


def reference(lm: LanguageModel) -> np.ndarray:
    """The model's own forward pass, one prompt at a time."""
    with torch.inference_mode():
        logits = [lm.model(torch.tensor([ids])).logits[0, -1].float() for ids in PROMPTS]
    return torch.stack(logits).log_softmax(dim=-1)[:, list(CHOICES)].numpy()


@pytest.mark.every_family
def test_log_probabilities_are_those_of_transformers(tiny: LanguageModel) -> None:
    found = choice_log_probs(tiny, PROMPTS, shared_prefix(tiny), [range(len(PROMPTS))], CHOICES)
    assert found.numpy() == pytest.approx(reference(tiny), abs=1e-4)


def test_neither_batches_nor_the_prefix_nor_little_memory_change_them(tiny_llama: LanguageModel) -> None:
    wanted = reference(tiny_llama)
    alone = choice_log_probs(tiny_llama, PROMPTS, no_prefix(), [[3], [1, 4], [0, 2]], CHOICES, Budget(40))
    assert alone.numpy() == pytest.approx(wanted, abs=1e-4)


class ManyWorkers:
    """Every shard goes to a worker of its own, pickled."""

    divides = True

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.shards, self.counts = lm, 0, (0, 0)

    def counted(self, planned: int, done: int) -> None:
        self.counts = (self.counts[0] + planned, self.counts[1] + done)

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        for shard in shards:
            self.shards += 1
            yield pickle.loads(pickle.dumps(Worker(self.lm).run(pickle.loads(pickle.dumps(shard)), progress)))


def test_a_pass_in_shards_gives_every_prompt_its_own_numbers(tiny_llama: LanguageModel) -> None:
    work, executor = plan_choices("some", PROMPTS, CHOICES, 30), ManyWorkers(tiny_llama)
    assert work.prefix == SHARED
    found = run_choices(executor, work, Silent())
    assert executor.shards == len(work.batches) > 2
    assert found == pytest.approx(reference(tiny_llama), abs=1e-4)


def test_a_model_that_gives_no_numbers_is_told(tiny_llama: LanguageModel) -> None:
    broken = wrap(copy.deepcopy(tiny_llama.model), tiny_llama.tokenizer, name="broken")
    with torch.no_grad():
        broken.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="NaN or infinity"):
        choice_log_probs(broken, PROMPTS, no_prefix(), [range(len(PROMPTS))], CHOICES)
