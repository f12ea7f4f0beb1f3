"""Makes the helper modules importable, and a model whose numbers hang on what runs together."""

import pytest

from anchorscope.models.language_model import LanguageModel
from pass_cases import build_sensitive


@pytest.fixture(scope="session")
def sensitive() -> LanguageModel:
    """A tiny model whose states differ in their last bits where other items, or fewer, run together; read only."""
    return build_sensitive()
