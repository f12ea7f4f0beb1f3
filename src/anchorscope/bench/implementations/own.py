"""`anchorscope`: through the engine, as a run does it."""

import numpy as np
import torch
from torch import Tensor

from anchorscope.bench.workload import FOLDS, Workload
from anchorscope.engine.batching import Budget, automatic_tokens, plan_batches
from anchorscope.engine.capture import Work, capture, refuse_idle_cuts
from anchorscope.engine.decode import decode, decoded_lengths
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import CLEAN, SITES, Variant
from anchorscope.models.devices import ToHost, copy_rows, empty_on_host
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import ProbeSet, Scorer

_ATTENTION = SITES.index("attention")
_PROBES = 3  # per fold, as a run has them


class Own:
    """The engine of this package."""

    name = "anchorscope"

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.budget = Budget(automatic_tokens(lm))
        self.compiled = lm.device.type == "cuda"  # as in a run that is large enough to repay it

    def tune(self, workload: Workload) -> str:
        """A run does not choose by timing, so neither does this; blocks are compiled here."""
        self.knockout(workload)
        return f"batches of {self.budget.tokens} tokens" + (", compiled blocks" if self.compiled else "")

    def knockout(self, workload: Workload) -> Tensor:
        """Clean and masked rows together, behind the shared prefix."""
        return self._capture(workload, [CLEAN, Variant(dict(enumerate(workload.cuts)))])

    def clean(self, workload: Workload) -> Tensor:
        """What attention adds in the clean run, [layer, item, d_model]."""
        return self._capture(workload, [CLEAN])[0]

    def single_layer(self, workload: Workload) -> Tensor:
        """All single layers together, each from its layer on."""
        cuts = dict(enumerate(workload.cuts))
        layers = range(self.lm.n_layers)
        states = self._capture(workload, [Variant(cuts, range(layer, layer + 1)) for layer in layers])
        for layer in layers:
            states[layer, :layer] = 0  # what lies below the cut is the clean run's, and not part of the work
        return states

    def tokens(self, work: str, workload: Workload) -> float:
        """Every row only from where its cut begins, and from its layer on."""
        n_layers, rows = self.lm.n_layers, [(item.length, min(item.keys) + 1) for item in workload.items]
        clean = sum(length - workload.shared for length, _ in rows)
        changed = sum(length - first for length, first in rows)
        single = work == "single-layer"
        run = workload.shared + clean + changed * ((n_layers + 1) / 2 if single else 1)
        # After the last block's attention only the tokens that are read go on.
        dropped = clean + changed * (n_layers if single else 1) - len(rows) * (n_layers if single else 2)
        return run - dropped * self._after_attention / n_layers

    @property
    def _after_attention(self) -> float:
        """The share of a block's parameters that comes after its attention."""
        block = self.lm.layers[-1]
        fed = getattr(block, self.lm.family.mlp)
        return sum(one.numel() for one in fed.parameters()) / sum(one.numel() for one in block.parameters())

    def stream(self, workload: Workload) -> Tensor:
        """The knockout as a run does it: states go through the probes on the device, and only log-odds come back."""
        lm, kinds = self.lm, (1, _PROBES, FOLDS, self.lm.n_layers)
        generator = torch.Generator().manual_seed(0)
        fitted = ProbeSet(
            torch.randn(*kinds[1:], lm.d_model, generator=generator),
            torch.zeros(kinds[1:]),
            np.ones(kinds[1:]),
            np.ones(kinds[1:]),
            (),
        )
        scorer = Scorer([[fitted] * len(SITES)], np.arange(len(workload.items)) % FOLDS, lm.device)
        scores: list[Tensor] = []
        variants = [CLEAN, Variant(dict(enumerate(workload.cuts)))]
        prefix = compute_prefix(lm, workload.items[0].ids[: workload.shared])
        work = Work(workload.sequences, prefix, variants, self.budget, compiled=self.compiled)
        edges = capture(lm, work, lambda variant, batch, found: scores.append(scorer.score(batch, found)), "bench")
        refuse_idle_cuts(edges)
        return torch.cat(scores).cpu()

    def generate(self, workload: Workload) -> list[tuple[int, ...]]:
        """A greedy answer to every prompt."""
        lm, ends = self.lm, set(workload.end_tokens)
        prefix = compute_prefix(lm, workload.prompts[0][: workload.shared_by_prompts])
        lengths = decoded_lengths(workload.prompts, prefix.length, workload.new_tokens)
        batches = plan_batches(lengths, self.budget.tokens)
        answers = decode(
            lm,
            workload.prompts,
            prefix,
            batches,
            workload.new_tokens,
            lambda token, before: token in ends,
            budget=self.budget,
        )
        return [answer.ids for answer in answers]

    def close(self) -> None:
        """It holds nothing."""

    def _capture(self, workload: Workload, variants: list[Variant]) -> Tensor:
        lm = self.lm
        states = empty_on_host((len(variants), lm.n_layers, len(workload.items), lm.d_model), lm.dtype)

        def keep(key: tuple[int, list[int]], found: Tensor) -> None:
            variant, batch = key
            copy_rows(states[variant : variant + 1], batch, found[None])

        def turned(found: Tensor) -> Tensor:
            return found.transpose(0, 1).contiguous()  # by the device, which does it faster

        to_host = ToHost(keep)
        prefix = compute_prefix(lm, workload.items[0].ids[: workload.shared])
        edges = capture(
            lm,
            Work(workload.sequences, prefix, variants, self.budget, compiled=self.compiled),
            lambda variant, batch, found: to_host.put((variant, batch), turned(found[:, 0, _ATTENTION])),
            "bench",
        )
        refuse_idle_cuts(edges)
        to_host.finish()
        return states
