"""What the batches of a pass bring: log-odds stay on the device until the end, kept states go to the host."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.capture import STATISTICS, AnswerStats
from anchorscope.execute.parts import VariantPart
from anchorscope.models.devices import Fetched, ToHost, copy_rows, empty_on_host, to_device
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import Place, StatesPass
from anchorscope.probes.crossfit import Scorer


class Collected:
    """What one variant's batches bring: all are received, then the device is asked, then the part is there."""

    def __init__(
        self, lm: LanguageModel, shard: StatesPass, variant: int, keep: Sequence[Place], scorer: Scorer | None
    ) -> None:
        run = shard.run_by(variant)
        self.items = np.array(run, dtype=np.int64)
        self._slot = {item: slot for slot, item in enumerate(run)}
        self._places = tuple(keep)
        self._is_one_batch = bool(run and shard.items) and len(shard.batches) == 1
        self._states: Tensor | None = None
        if self._places and not self._is_one_batch:
            n_layers = lm.n_layers if shard.n_layers is None else shard.n_layers
            self._states = empty_on_host((len(self._places), n_layers, len(run), lm.d_model), lm.dtype)
        self._to_host = ToHost(partial(_put_into, self._states))  # no method: a cycle would hold all until it is found
        self._at_once: Fetched | None = None
        self._device, self._scorer = lm.device, scorer
        self._only = None if shard.probes is None else shard.probes.only
        self._logits: Tensor | None = None
        self._answers: list[Tensor] = []
        self._answered: list[int] = []  # the items that these are of
        self._lengths: list[int] = []

    def receive(self, batch: list[int], states: Tensor) -> None:
        """Where memory ran out within a batch that may be divided, some items come twice: the last time counts."""
        slots = [self._slot[item] for item in batch]
        if self._scorer is not None:
            scores = self._scorer.score(batch, states)
            if self._only is not None:
                position, site, probe = (slice(one, one + 1) for one in self._only)
                scores = scores[:, position, site, probe]
            if self._logits is None:
                self._logits = scores.new_zeros((len(self.items), *scores.shape[1:]))
            self._logits[to_device(torch.as_tensor(slots), scores.device)] = scores
        if not self._places:
            return
        kept = [states[:, position, site].transpose(0, 1) for position, site in self._places]
        if not self._is_one_batch:  # a copy, turned by the device
            self._to_host.put(slots, torch.stack(kept))
            return
        assert len(slots) == len(self.items), "a planned batch is never divided"
        turned = states.new_empty((len(kept), kept[0].shape[0], len(slots), kept[0].shape[2]))
        order = to_device(np.argsort(slots), states.device)
        for place, one in enumerate(kept):  # put in order, too: the host need not copy it again
            torch.index_select(one, 1, order, out=turned[place])
        self._at_once = Fetched([turned], self._device)

    def receive_answers(self, batch: list[int], found: Tensor, lengths: list[int]) -> None:
        """The statistics of the answers of a batch."""
        self._answers.append(found)
        self._answered += batch
        self._lengths += lengths

    def fetch(self) -> None:
        """Asks the device for what is still there, once, when all batches have come."""
        answers = torch.cat([torch.empty(len(STATISTICS), 0, device=self._device), *self._answers], dim=1)
        logits = [] if self._logits is None else [self._logits]
        self._fetched = Fetched([answers, *logits], self._device)
        self._answers.clear()

    def answers(self) -> AnswerStats:
        """The statistics of all items' answers, in their order; waits for the device."""
        found = AnswerStats(np.array(self._lengths, dtype=np.int64), *self._fetched.get()[0].numpy())
        place = {item: index for index, item in enumerate(self._answered)}
        return found.take([place[item] for item in self.items.tolist()])

    def part(self, answers: AnswerStats | None) -> VariantPart:
        """All of it, with the statistics of answers where they are wanted; waits for the device."""
        self._to_host.finish()
        if self._at_once is not None:
            (self._states,) = self._at_once.get()
        logits = None if self._logits is None else self._fetched.get()[1].numpy().copy()
        return VariantPart(self.items, logits, self._states, answers)


def _put_into(whole: Tensor | None, slots: list[int], states: Tensor) -> None:
    assert whole is not None
    copy_rows(whole, slots, states)
