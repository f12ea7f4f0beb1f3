"""Probes of every layer: those of a run, told by fits that never saw the items."""

import numpy as np
import torch

from anchorscope.detectors.features import Features
from anchorscope.detectors.layer_probes import fit_layer_probes
from anchorscope.probes.crossfit import fit_final_probes
from anchorscope.probes.folds import truth_strata
from anchorscope.stats.streams import priorities
from made_detection import LAYERS, WIDTH, made_dataset


def test_they_are_the_final_probes_of_a_run() -> None:
    data = made_dataset()
    found = fit_layer_probes(data.features, data.examples, "mlp")
    assert found.layers == LAYERS
    assert found.weight.shape == (2, WIDTH)
    states = torch.stack([data.features.states["clean", "mlp", layer] for layer in LAYERS])
    strata = truth_strata(data.examples.labels, data.examples.relations)
    order = priorities(0, "layer probes", data.examples.item_ids)
    (final,) = fit_final_probes(states[None], strata, data.examples.groups, ["mlp"], order)
    torch.testing.assert_close(found.weight, final.weight.float())
    np.testing.assert_allclose(found.strength, final.strength)
    wanted = states.double() @ final.weight.double()[:, :, None]
    np.testing.assert_allclose(
        found.log_odds(states), wanted[..., 0].numpy() + final.bias.double().numpy()[:, None], rtol=1e-5
    )


def test_what_is_told_of_them_is_out_of_fold() -> None:
    nothing = made_dataset(n=90, signal=0.0, seed=4)
    found = fit_layer_probes(nothing.features, nothing.examples, "mlp")
    assert found.auc.max() < 0.68  # a probe that has seen the items tells them apart perfectly
    states = torch.stack([nothing.features.states["clean", "mlp", layer] for layer in LAYERS])
    labels = nothing.examples.labels
    seen = found.log_odds(states)
    assert (seen[:, labels].mean(1) - seen[:, ~labels].mean(1)).min() > np.diff(found.means, axis=0).max()


def test_the_cut_takes_what_it_was_made_to_take() -> None:
    data = made_dataset(n=300, signal=3.0)
    found = fit_layer_probes(data.features, data.examples, "mlp")
    assert found.auc.min() > 0.8
    assert found.cut_means is not None
    assert found.delta_p is not None
    left = (found.cut_means[1] - found.cut_means[0]) / (found.means[1] - found.means[0])
    np.testing.assert_allclose(left, 0.5, atol=0.1)
    assert (found.delta_p[0] > 0).all()
    assert (found.delta_p[1] < 0).all()
    clean_only = {key: one for key, one in data.features.states.items() if key[0] == "clean"}
    without = fit_layer_probes(Features(data.features.n_items, clean_only, {}), data.examples, "mlp")
    assert without.cut_means is None
    np.testing.assert_array_equal(without.auc, found.auc)
