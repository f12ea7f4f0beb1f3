"""Our metrics are those of lm-polygraph: against values that it computed (`tools/record_polygraph.py`)."""

import json
from pathlib import Path

import pytest

from polygraph_parity import TOLERANCE, our_values

RECORDED = json.loads(
    Path(__file__).with_name("polygraph_metrics.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("world", RECORDED["worlds"])
def test_metrics_equal_those_of_lm_polygraph(world):
    one = RECORDED["worlds"][world]
    found = our_values(one["probability"], one["truthful"])
    assert set(found) == set(one["values"])
    for name, wanted in one["values"].items():
        assert found[name] == pytest.approx(wanted, abs=TOLERANCE), name
