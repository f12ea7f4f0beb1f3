"""A detector of made-up weights on a tiny model, as the adapters are given one."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def bundle(tiny_llama, tmp_path_factory) -> Path:
    """A saved detector of the tiny model."""
    from anchorscope.detectors.bundle import write_bundle
    from detector_cases import trained_on

    place = tmp_path_factory.mktemp("bundles") / "probe"
    write_bundle(place, trained_on(tiny_llama))
    return place
