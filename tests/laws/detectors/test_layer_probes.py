"""Probes of every layer: those of a run, told by fits that never saw the items."""

from dataclasses import replace

import numpy as np
import torch

from anchorscope.detecting.saving import fit_layer_probes
from anchorscope.detectors.features import Features
from anchorscope.probes.crossfit import fit_final_probes
from anchorscope.probes.folds import truth_strata
from anchorscope.stats.streams import priorities
from made_detection import LAYERS, WIDTH, made_dataset


def test_they_are_the_final_probes_of_a_run() -> None:
    data = made_dataset()
    found = fit_layer_probes(data, "mlp")
    assert found.layers == LAYERS
    assert found.weight.shape == (2, WIDTH)
    states = torch.stack([data.features.states["clean", "mlp", layer] for layer in LAYERS])
    strata = truth_strata(data.labels, data.relations)
    order = priorities(0, "layer probes", data.item_ids)
    (final,) = fit_final_probes(states[None], strata, data.groups, ["mlp"], order)
    torch.testing.assert_close(found.weight, final.weight.float())
    wanted = states.double() @ final.weight.double()[:, :, None]
    np.testing.assert_allclose(
        found.log_odds(states), wanted[..., 0].numpy() + final.bias.double().numpy()[:, None], rtol=1e-5
    )


def test_what_is_told_of_them_is_out_of_fold() -> None:
    nothing = made_dataset(n=90, signal=0.0, seed=4)
    found = fit_layer_probes(nothing, "mlp")
    assert max(found.auc) < 0.68  # a probe that has seen the items tells them apart perfectly


def test_the_cut_takes_what_it_was_made_to_take() -> None:
    data = made_dataset(n=300, signal=3.0)
    found = fit_layer_probes(data, "mlp")
    assert min(found.auc) > 0.8
    assert found.delta_p is not None
    false, true = found.delta_p
    assert min(false) > 0 > max(true)
    clean_only = {key: states for key, states in data.features.states.items() if key[0] == "clean"}
    without = fit_layer_probes(replace(data, features=Features(data.features.n_items, clean_only, {})), "mlp")
    assert without.delta_p is None
    assert without.auc == found.auc
