"""What the same answer looks like without the question's key words, stacked with probe and confidence.

Columns: the probe's log-odds on the clean and on the cut state; a probe fitted on the cut states; one on the answer
alone; how far the cut moves the state at every layer; how much likelier the key words make the answer; confidence.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.detectors.bank import fit_bank
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.fitted_states import StateChange, state_change
from anchorscope.detectors.single import DetectorFit, fit_other_run, stacked_sum
from anchorscope.detectors.stacking import fit_stack

ANSWER_ONLY = "answer-only"


def fit_counterfactual(data: TrainingData, run: str) -> DetectorFit:
    """The stack; `run` is the cut, and what was not collected is left out."""
    changed = data.changed(run)
    refit = fit_bank(changed, data.training, data.device)
    best = refit.inner_auc.argmax(0).cpu().numpy()
    # The clean answer's log-probabilities are among the columns of confidence: the stack takes the difference.
    names = (
        tuple(name for name in (f"{run}_log_prob_mean", f"{run}_log_prob_min") if name in data.features.columns)
        + data.confidence
    )
    alone = fit_other_run(data, ANSWER_ONLY) if data.has(ANSWER_ONLY) else None
    log_odds = [data.log_odds, data.at_best(data.bank, changed, data.best), data.at_best(refit, changed, best)]
    log_odds += [] if alone is None else [alone.scores]
    columns = torch.cat([torch.stack(log_odds, dim=-1), _changes(data, run), data.columns(names)], dim=-1)
    stacked = fit_stack(columns, data.training)

    def build(number: int) -> Fitted:
        key = (run, data.site, data.layers[int(best[number])])
        probes: list[Fitted] = [
            data.best_probe(number),
            data.best_probe(number, run),
            data.probe(refit, data.directions, key, int(best[number]), number),
        ]
        probes += [] if alone is None or alone.build is None else [alone.build(number)]
        probes += [StateChange(run, data.site, layer) for layer in data.layers]
        return stacked_sum(stacked, number, tuple(probes), names)

    return DetectorFit(stacked.scores, build)


def _changes(data: TrainingData, run: str) -> Float[Tensor, "set item layer"]:
    """How far the cut moves the state, at every layer."""
    states = data.features.states
    found = [
        state_change(states[CLEAN, data.site, layer].to(data.device), states[run, data.site, layer].to(data.device))
        for layer in data.layers
    ]
    return torch.stack(found, dim=-1).float().expand(data.training.n_sets, -1, -1)
