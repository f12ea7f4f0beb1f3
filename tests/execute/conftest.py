"""Makes the helper modules importable, and a model whose numbers hang on what runs together."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode does not
sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parents[1] / "evidence"))  # the synthetic findings of the tables' tests

from pass_cases import build_sensitive

from anchorscope.models.language_model import LanguageModel


@pytest.fixture(scope="session")
def sensitive() -> LanguageModel:
    """A tiny model whose states differ in their last bits where other items, or fewer, run together; read only."""
    return build_sensitive()
