"""The architectures that stand for all in the engine's laws have, between them, everything that a family can have."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from anchorscope.models.families import FAMILIES, Family, listed_family
from anchorscope.models.language_model import LanguageModel
from tiny_models import REPRESENTATIVES, TINY, build_tiny

BUILD = [field.name for field in fields(Family) if field.name.startswith(("norm_", "rotary", "position_", "parallel"))]
"""What a family's table says beside the names of parts that all have."""


def built(family: Family) -> dict[str, bool]:
    """What a block of this family has."""
    return {name: bool(getattr(family, name)) for name in BUILD}


FEATURES: dict[str, Callable[[LanguageModel, Any, Any], bool]] = {
    "heads share keys": lambda lm, attention, mlp: getattr(attention, "num_key_value_groups", 1) > 1,
    "a sliding window": lambda lm, attention, mlp: lm.sliding_window(0) is not None,
    "layers that differ in their window": lambda lm, attention, mlp: lm.sliding_window(0) != lm.sliding_window(1),
    "soft caps": lambda lm, attention, mlp: getattr(attention, "attn_logit_softcapping", None) is not None,
    "heads of their own width": lambda lm, attention, mlp: getattr(attention, "head_dim", 8) * lm.n_heads != lm.d_model,
    "experts": lambda lm, attention, mlp: hasattr(mlp, "experts"),
}
"""What an architecture's blocks compute, which no table says."""


@pytest.fixture(scope="module")
def models() -> dict[str, LanguageModel]:
    return {kind: build_tiny(kind) for kind in TINY}


@pytest.mark.parametrize("part", BUILD)
def test_what_some_family_has_or_lacks_a_representative_has_or_lacks(part: str) -> None:
    known = [family for kind in REPRESENTATIVES if (family := listed_family(kind)) is not None]
    assert len(known) == len(REPRESENTATIVES)
    assert {built(family)[part] for family in known} == {built(family)[part] for family in FAMILIES}


@pytest.mark.parametrize("feature", FEATURES)
def test_what_some_architecture_computes_a_representative_computes(
    models: dict[str, LanguageModel], feature: str
) -> None:
    def has(kind: str) -> bool:
        lm = models[kind]
        return FEATURES[feature](lm, *(getattr(lm.layers[0], part) for part in (lm.family.attention, lm.family.mlp)))

    assert {has(kind) for kind in TINY} == {True, False}  # or nothing is looked at
    assert {has(kind) for kind in REPRESENTATIVES} == {True, False}
