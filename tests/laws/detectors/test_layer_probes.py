"""Probes of every layer: those that the detectors are made of, described by fits that never saw the items."""

from dataclasses import replace

import numpy as np
import torch

from anchorscope.detecting.saving import layer_probes_of
from anchorscope.detectors.features import Features
from made_detection import LAYERS, WIDTH, made_dataset, made_trained


def test_they_are_the_probes_on_the_clean_states() -> None:
    trained = made_trained(seeds=1)
    found, data = layer_probes_of(trained), trained.fits.data
    assert (found.layers, found.weight.shape) == (LAYERS, (2, WIDTH))
    states = torch.stack([data.features.states["clean", "mlp", layer] for layer in LAYERS])
    single = data.probe.build(trained.whole)
    place = LAYERS.index(single.key[2])
    np.testing.assert_allclose(found.log_odds(states)[place], single.log_odds(data.features), rtol=1e-5)
    assert found.reference_layer == single.key[2]


def test_what_is_reported_of_them_is_out_of_fold() -> None:
    nothing = made_dataset(n=90, signal=0.0, seed=4)
    assert max(layer_probes_of(made_trained(nothing, seeds=1)).auc) < 0.68  # 1.0 for a probe that has seen the items


def test_the_cut_takes_what_it_was_made_to_take() -> None:
    data = made_dataset(n=300, signal=3.0)
    found = layer_probes_of(made_trained(data, seeds=1))
    assert min(found.auc) > 0.8
    assert found.delta_p is not None
    false, true = found.delta_p
    assert min(false) > 0 > max(true)
    clean_only = {key: states for key, states in data.features.states.items() if key[0] == "clean"}
    without = layer_probes_of(made_trained(replace(data, features=Features(300, clean_only, {})), seeds=1))
    assert without.delta_p is None
    assert without.auc == found.auc
