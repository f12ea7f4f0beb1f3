"""The passes of a run as the benchmark of scale runs them: answers, clean states, the knockout with its controls.

They are planned and kept as a run does it: states of all sites in the clean run, under the knockout and under the first
random control; of four further draws of that control at one site. Probes have made-up weights, as only their cost
counts here. Blocks are not compiled.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from anchorscope.answers.endings import LINE
from anchorscope.bench.workload import FOLDS, Workload
from anchorscope.engine.sequences import SITES, Cut, Variant
from anchorscope.execute.content_hash import content_hash
from anchorscope.execute.executor import Executor
from anchorscope.execute.parts import DecodedPart
from anchorscope.execute.run_passes import run_decoding, run_states
from anchorscope.execute.wire import pack_result
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.decoding import DecodePass, plan_decoding
from anchorscope.plan.passes import OutOfFoldProbes, StatesPass, planner_for
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.progress import Silent

ANSWERS, CLEAN_STATES, KNOCKOUT = "answers", "clean states", "knockout and controls"
"""The passes, in their order."""
DRAWS = 5
"""Random controls, as a run has them."""
_PROBES = 3  # per fold, as a run has them
_EVERYWHERE = tuple((0, site) for site in range(len(SITES)))

Pass = StatesPass | DecodePass


def scale_passes(lm: LanguageModel, workload: Workload, seed: int, batch_tokens: int | None = None) -> dict[str, Pass]:
    """All of them, by name."""
    planner = planner_for(lm, batch_tokens)
    prefix = workload.items[0].ids[: workload.shared]
    asked = workload.prompts[0][: workload.shared_by_prompts]
    clean = planner.states(CLEAN_STATES, workload.sequences, prefix)
    variants = [Variant(dict(enumerate(workload.cuts))), *_controls(workload, seed)]
    cut = planner.states(KNOCKOUT, workload.sequences, prefix, variants)
    keep = (_EVERYWHERE, _EVERYWHERE, *[_EVERYWHERE[:1]] * (DRAWS - 1))
    return {
        ANSWERS: plan_decoding(ANSWERS, workload.prompts, asked, workload.new_tokens, LINE, planner.batch_tokens),
        CLEAN_STATES: replace(clean, keep=(_EVERYWHERE,), log_probs=True),
        KNOCKOUT: replace(cut, keep=keep, probes=_probes(lm, len(workload.items))),
    }


def _controls(workload: Workload, seed: int) -> list[Variant]:
    """As many other tokens of each item cut, drawn at random; items that have none are left out."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        cuts = {}
        for index, item in enumerate(workload.items):
            others = sorted(set(range(workload.shared, item.length - 1)) - set(item.keys))
            if others:
                keys = rng.choice(others, size=min(len(item.keys), len(others)), replace=False)
                cuts[index] = Cut(tuple(sorted(keys.tolist())), "all")
        found.append(Variant(cuts))
    return found


def _probes(lm: LanguageModel, n_items: int) -> OutOfFoldProbes:
    shape = (_PROBES, FOLDS, lm.n_layers)
    generator = torch.Generator().manual_seed(0)
    made = [
        ProbeSet(
            torch.randn(*shape, lm.d_model, generator=generator), torch.zeros(shape), np.ones(shape), np.ones(shape), ()
        )
        for _ in SITES
    ]
    return OutOfFoldProbes((tuple(made),), np.arange(n_items) % FOLDS)


def run_pass(executor: Executor, work: Pass) -> Any:
    """The whole pass, its parts merged by item."""
    if isinstance(work, DecodePass):
        return DecodedPart(run_decoding(executor, work, Silent()))
    return run_states(executor, work, Silent())


def digest(found: Any) -> str:
    """The hash of all that a pass gave."""
    return content_hash(pack_result(found))


def tokens_of(work: Pass, n_layers: int) -> int:
    """Tokens that a pass runs, without padding; of answers as many as they may have."""
    lengths: Sequence[int] = work.lengths(n_layers)
    return sum(lengths[item] for batch in work.batches for item in batch)
