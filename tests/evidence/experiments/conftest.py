"""Makes the helper module of this folder importable, and its builder a fixture; pytest's import mode does not."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import experiments_synthetic
from anchorscope.evidence.experiments.ground import Ground


@pytest.fixture(scope="session")
def make_ground() -> Callable[..., Ground]:
    """Builds a ground by hand; `from experiments_synthetic import make_ground` gives the same function."""
    return experiments_synthetic.make_ground
