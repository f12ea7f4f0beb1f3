"""Writes what the metrics of lm-polygraph give on made-up scores; run by hand where that library is installed too."""

import importlib.metadata
import json
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS / "support"))

from polygraph_parity import its_values, worlds  # noqa: E402

found = {
    name: {
        "probability": probability,
        "truthful": truthful,
        "values": its_values(probability, truthful),
    }
    for name, (probability, truthful) in worlds().items()
}
header = {
    "what": "metrics that lm-polygraph computed on these scores; uncertainty = −probability",
    "made_with": f"lm-polygraph {importlib.metadata.version('lm-polygraph')}",
    "command": "python tools/record_polygraph.py",
}
out = TESTS / "laws" / "stats" / "polygraph_metrics.json"
out.write_text(
    json.dumps({**header, "worlds": found}, ensure_ascii=False) + "\n", encoding="utf-8"
)
