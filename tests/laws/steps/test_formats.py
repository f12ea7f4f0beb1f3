"""What a step leaves on disk: the same value is the same bytes, however often it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anchorscope.evidence.effects import Effect, Measurements
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.steps import make
from anchorscope.steps.formats import format_for


def probe_sets() -> dict[str, ProbeSet]:
    ones = np.ones((2, 3, 4))
    return {
        name: ProbeSet(
            torch.full((2, 3, 4, 5), float(place)), torch.zeros(2, 3, 4), ones.copy(), ones.copy(), (), (name,)
        )
        for place, name in enumerate(("mlp/final", "attention/final", "residual/final", "mlp/answer_end"))
    }


def measurements() -> Measurements:
    items = np.arange(3)
    return Measurements([Effect("knockout", "all", items, items + 1, np.ones((3, 1, 1, 1, 2), np.float32))], [])


@pytest.mark.parametrize(
    ("form", "value"), [(format_for(make.probes), probe_sets()), (format_for(make.knockout_effects), measurements())]
)
def test_the_same_value_is_the_same_bytes_and_comes_back(form: Any, value: Any, tmp_path: Path) -> None:
    written = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        form.write(value, folder)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert all(one == written[0] for one in written[1:])
    found = form.read(tmp_path / "0")
    if isinstance(value, dict):
        assert set(found) == set(value)
        for name, one in value.items():
            assert torch.equal(found[name].weight, one.weight)
            assert found[name].notes == (name,)
    else:
        assert found.effects[0].intervention == "knockout"
        assert found.effects[0].variant == "all"
        assert found.effects[0].logits.tolist() == value.effects[0].logits.tolist()
