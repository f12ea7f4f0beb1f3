"""The works that run the model: the knockout over all layers, the knockout of every single layer, greedy answers.

For states, every implementation is tuned, then checked on a few items against the plain loop in float32 (which also
warms it up), then timed in turns with the others. Slow ones run fewer items: rates are compared, not seconds. Answers
are compared with transformers' own `generate` at its best batch size.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from anchorscope.bench.implementations import CannotDo, Implementation, Own, Plain, PlainBatched, is_foreign, make
from anchorscope.bench.measuring import Row, Setting
from anchorscope.bench.workload import Workload
from anchorscope.models.devices import is_out_of_memory
from anchorscope.models.language_model import LanguageModel

_EXPLAINED = {torch.float32: 1e-4}  # of the largest state; what the order of sums can do
_EXPLAINED_COARSE = 0.15  # in half precision, over tens of layers
_LEAST = 4  # items of a timed repeat
_WARM = 8  # prompts of our untimed run
_CHECKED = {"knockout": 8, "single-layer": 2}  # items whose states are compared


@dataclass
class StateImplementations:
    """The implementations that give states, each made and tuned once for both works."""

    setting: Setting
    workload: Workload
    implementations: dict[str, Implementation] = field(default_factory=dict)
    tuned: dict[str, str] = field(default_factory=dict)
    """What each implementation chose when it was tuned."""
    rates: dict[str, float] = field(default_factory=dict)
    """Tokens per second of each knockout after tuning, to know how many items an implementation can afford."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why an implementation cannot run at all."""

    def rows(self, work: str) -> list[Row]:
        """One row per chosen implementation."""
        names = self.setting.options.implementations_of(work)
        for name in names:
            self._prepare(name)
        ready = [name for name in names if name in self.implementations]
        reference = _Reference(self.setting, work, self.workload) if ready else None
        rows: dict[str, Row] = {}
        runs: dict[str, Callable[[], object]] = {}
        parts: dict[str, Workload] = {}
        for name in ready:
            row = Row(work, name, setting=self.tuned[name])
            try:
                rows[name] = self._checked(row, reference)
            except CannotDo as error:
                rows[name] = replace(row, note=str(error))
                continue
            except Exception as error:
                if not is_foreign(name):
                    raise
                rows[name] = replace(row, note=f"fails here with {type(error).__name__}: {str(error)[:160]}")
                continue
            parts[name] = self._affordable(name, work)
            runs[name] = lambda name=name: _run(self.implementations[name], work, parts[name])  # type: ignore[misc]
        for name, taken in self.setting.race(runs, work).items():
            tokens = self.implementations[name].tokens(work, parts[name])
            rows[name] = rows[name].timed(
                len(parts[name].items), taken, self.setting.held, tokens, self.setting.peak_tokens_per_s
            )
        if work == "knockout" and "anchorscope" in runs:
            rows["anchorscope"] = self._streaming(rows["anchorscope"])
        return [rows[name] if name in rows else Row(work, name, note=self.missing[name]) for name in names]

    def _streaming(self, row: Row) -> Row:
        """The row with what the same work takes when probes read the states as they come."""
        own, setting = self.implementations["anchorscope"], self.setting
        assert isinstance(own, Own)
        own.stream(self.workload)  # its first products are slow
        taken = setting.race({"streaming": lambda: own.stream(self.workload)}, "knockout")["streaming"]
        seconds = median(repeat.seconds for repeat in taken)
        share = own.tokens("knockout", self.workload) / seconds / setting.peak_tokens_per_s
        return replace(row, streaming_items_per_s=len(self.workload.items) / seconds, streaming_share_of_peak=share)

    def _prepare(self, name: str) -> None:
        if name in self.implementations or name in self.missing:
            return
        self.setting.say(f"{name}: prepared")
        try:
            implementation = make(name, self.setting.lm)
            self.tuned[name] = implementation.tune(self.workload)
            part = self.workload.first(self._batch(implementation))
            began = time.perf_counter()
            implementation.knockout(part)
            self.rates[name] = implementation.tokens("knockout", part) / (time.perf_counter() - began)
            self.implementations[name] = implementation
            self.setting.say(f"{name}: {self.tuned[name]}")
        except CannotDo as error:
            self.missing[name] = str(error)
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:160]
            if is_out_of_memory(error):
                self.missing[name] = f"memory does not suffice ({reason})"
            elif is_foreign(name):  # another library's failure is reported, and the others go on
                self.missing[name] = f"fails here with {type(error).__name__}: {reason}"
            else:
                raise

    def _checked(self, row: Row, reference: "_Reference | None") -> Row:
        assert reference is not None  # there is one wherever an implementation is ready
        return reference.compare(row, _run(self.implementations[row.way], row.work, reference.part))

    def _affordable(self, name: str, work: str) -> Workload:
        """As many items as one repeat has the time for: whole batches, or a part of one, but never very few."""
        implementation, n = self.implementations[name], len(self.workload.items)
        each = implementation.tokens(work, self.workload) / n / self.rates[name]
        batch, fits = max(2, self._batch(implementation)), int(self.setting.options.seconds / each)
        return self.workload.first(min(n, fits // batch * batch if fits >= batch else max(_LEAST, fits)))

    def _batch(self, implementation: Implementation) -> int:
        """Items that an implementation runs together; ours sees all of them, and makes its batches itself."""
        return int(getattr(implementation, "size", len(self.workload.items)))


def _run(implementation: Implementation, work: str, workload: Workload) -> Tensor:
    return implementation.knockout(workload) if work == "knockout" else implementation.single_layer(workload)


class _Reference:
    """What the plain loop gives in float32, or in the model's own precision where a float32 copy does not fit."""

    def __init__(self, setting: Setting, work: str, workload: Workload) -> None:
        lm = setting.lm
        self.part = workload.first(_CHECKED[work])
        exact = lm if lm.dtype == torch.float32 else _float32_copy(setting)
        self.precision = str((exact or lm).dtype).removeprefix("torch.")
        setting.say(f"{work}: reference states of {len(self.part.items)} items in {self.precision}")
        self.states = _run(Plain(exact or lm), work, self.part).float()

    def compare(self, row: Row, states: Tensor) -> Row:
        """The row with its differences."""
        off = float((states.float() - self.states).abs().max())
        relative = off / float(self.states.abs().max())
        most = _EXPLAINED.get(states.dtype, _EXPLAINED_COARSE)
        against = f"states of {len(self.part.items)} items against plain in {self.precision}"
        return replace(
            row,
            max_difference=off,
            relative_difference=relative,
            difference_is=f"largest absolute difference of {against}",
            note=row.note if relative <= most else f"DIFFERS by {relative:.1%}, more than the precision explains",
        )


def _float32_copy(setting: Setting) -> LanguageModel | None:
    """The model in float32 beside itself; None if it does not fit."""
    lm = setting.lm
    needed = 4 * sum(tensor.numel() for tensor in lm.model.parameters())
    if lm.device.type == "cuda" and torch.cuda.mem_get_info(lm.device)[0] < 1.5 * needed:
        return None
    return replace(lm, model=copy.deepcopy(lm.model).float())


def generation_rows(setting: Setting, workload: Workload) -> list[Row]:
    """One row for the engine, one for `generate`."""
    names = setting.options.implementations_of("generation")
    generators: dict[str, Own | PlainBatched] = {}
    tuned: dict[str, str] = {}
    if "anchorscope" in names:
        own = generators["anchorscope"] = Own(setting.lm)
        own.generate(workload.first(_WARM))
        tuned["anchorscope"] = f"batches of {own.batch_tokens} tokens"
    if "plain-batched" in names:
        plain = generators["plain-batched"] = PlainBatched(setting.lm)
        tuned["plain-batched"] = plain.tune_generation(workload)
        setting.say(f"plain-batched (generate): {tuned['plain-batched']}")
    answers: dict[str, list[tuple[int, ...]]] = {}

    def generate(name: str) -> None:
        answers[name] = generators[name].generate(workload)

    taken = setting.race({name: partial(generate, name) for name in names}, "generation")
    n = len(workload.prompts)
    rows = [
        Row("generation", name, "questions", setting=tuned[name]).timed(n, taken[name], setting.held) for name in names
    ]
    if len(answers) < 2:
        return rows
    differ = sum(a != b for a, b in zip(*answers.values(), strict=True)) / n
    meaning = "share of the answers that differ between the two"
    return [replace(row, max_difference=differ, relative_difference=differ, difference_is=meaning) for row in rows]
