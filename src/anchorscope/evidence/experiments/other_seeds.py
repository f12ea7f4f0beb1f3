"""The same states with other folds and other probes: what another seed would have made of them."""

import torch

from anchorscope.errors import UserError
from anchorscope.evidence.effects import score_states
from anchorscope.evidence.experiments.inputs import ExperimentInputs
from anchorscope.evidence.gather import refit_logits
from anchorscope.evidence.items import KNOCKOUT, Measured
from anchorscope.probes.crossfit import fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.scoring import Scorer
from anchorscope.stats.streams import priorities

SEEDS = 3
"""Other seeds that are tried."""


def no_other_seeds(inputs: ExperimentInputs) -> str | None:
    """Why other probes cannot be put on the cut states, if so."""
    if KNOCKOUT not in inputs.cut_states():
        return f"other seeds: the states under the {KNOCKOUT} were not kept, so no other probe can score them"
    return None


def measured_anew(inputs: ExperimentInputs, seed: int) -> Measured | str:
    """Log-odds before and after the knockout by probes of another seed, or why there are none."""
    place, device = inputs.measured, torch.device(inputs.device)
    clean, cut = inputs.states(), inputs.cut_states()[KNOCKOUT]
    ids = [item.item_id for item in inputs.used_items]
    folds = grouped_folds(place.groups, place.labels, int(place.folds.max()) + 1, priorities(seed, "folds", ids))
    try:
        splits = make_splits(place.labels, place.groups, folds, seed, ("full",), ids)
    except UserError:
        return f"seed {seed}: its folds leave only true or only false answers on some side"
    (probes,) = fit_probes(clean[None], splits, [f"seed {seed}"], device, inputs.progress)
    scorer = Scorer([[probes]], folds, device)
    before, after = (
        score_states(scorer, states[None, None])[:, 0, 0].transpose(1, 2, 0)  # [probe, layer, item]
        for states in (clean, cut)
    )
    return Measured(
        labels=place.labels,
        groups=place.groups,
        folds=folds,
        probes=splits.probes,
        before=before,
        after={KNOCKOUT: after},
        ran={KNOCKOUT: place.ran[KNOCKOUT]},
        n_cut={KNOCKOUT: place.n_cut[KNOCKOUT]},
        reference=probes.reference,
        refits={KNOCKOUT: refit_logits(KNOCKOUT, cut, splits, inputs.progress, device)},
    )
