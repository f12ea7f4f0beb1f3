"""A detector of made-up weights on a tiny model, as the adapters are given one, and a service of such detectors.

Imports stand in the fixtures: every adapter is tested in an environment that has only its own library.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def bundle(tiny_llama, tmp_path_factory) -> Path:
    from anchorscope.detectors.bundle import write_bundle
    from detector_cases import trained_on

    place = tmp_path_factory.mktemp("bundles") / "probe"
    write_bundle(place, trained_on(tiny_llama))
    return place


@pytest.fixture(scope="module")
def service(tiny_llama) -> Iterator[Any]:
    from running import running

    with running(tiny_llama) as one:
        yield one
