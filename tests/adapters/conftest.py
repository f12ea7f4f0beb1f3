"""A detector of made-up weights on a tiny model, as the adapters are given one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "detectors"))  # the cases of the detectors' tests


@pytest.fixture(scope="module")
def bundle(tiny_llama, tmp_path_factory) -> Path:
    """A saved detector of the tiny model."""
    from detector_cases import trained_on

    from anchorscope.artefacts.bundles import write_bundle

    place = tmp_path_factory.mktemp("bundles") / "probe"
    write_bundle(place, trained_on(tiny_llama))
    return place
