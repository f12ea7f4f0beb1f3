"""The card of a saved detector, as Markdown: training data, quality, limits, how to load it.

The lines between the two `---` are what a hub of models reads.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anchorscope.detectors.trained import TrainedDetector
from anchorscope.kept_states import format_ranges
from anchorscope.models.sources import is_hub_id
from anchorscope.stats.calibration import Threshold

_TAGS = ("anchorscope", "hallucination-detection", "truthfulness", "probe", "interpretability")
_CARD = """---
library_name: anchorscope
tags: {tags}{base_model}
---
# Detector `{name}` for {model}

Says how probable it is that a short answer of {model} is true. It reads {reads} at
`{position}`, under the {prompt} prompt, and nothing else.

```python
import anchorscope

detector = anchorscope.Detector.load({place})
detector.score("What is the capital of Peru?", "Lima").truth_probability
```

The bundle is two files, JSON and safetensors; nothing in it is run. A model with other weights, another
tokenizer or another template is refused.

- sha256 of the bundle: `{sha256}`
- fingerprint of the model: `{fingerprint}`
- layers: {n_layers}, precision: {dtype}

## Data

{data}

"""


def card_text(trained: TrainedDetector, place: str) -> str:
    """The card of a detector that was read from a bundle; `place` is what `Detector.load` is given."""
    setting, card = trained.setting, trained.card
    layers = sorted({layer for _, _, layer in trained.needs.states})
    text = _CARD.format(
        tags=json.dumps(list(_TAGS)),
        base_model=f"\nbase_model: {json.dumps(setting.source)}" if is_hub_id(setting.source) else "",
        name=_plain(trained.name),
        model=_plain(setting.model),
        reads=f"the states of layer {format_ranges(layers)}" if layers else "the model's confidence",
        position=_plain(setting.position),
        prompt=_plain(setting.template.kind),
        place=json.dumps(place),
        sha256=trained.sha256,
        fingerprint=_plain(setting.fingerprint),
        n_layers=setting.n_layers,
        dtype=_plain(setting.dtype),
        data=_plain(card.data) or "Nothing was written down.",
    )
    quality = ["Nothing was measured (it was saved with --fit-only)."]
    if card.quality:
        quality = [
            "| metric | trained on | tested on | answers | value | 95 % interval | n |",
            "|---|---|---|---|---|---|---|",
            *map(_quality_row, card.quality),
        ]
    accepted = [
        "| false among the accepted, at most | from this probability on | share accepted | calibration answers |",
        "|---|---|---|---|",
        *map(_threshold_row, trained.thresholds),
    ]
    shifts = [f"- Also tried on {_plain(name)}." for name in card.shifts] or ["- It was tried on no other data."]
    sections = {
        "Quality": quality,
        "Which answers are accepted": accepted if trained.thresholds else [],
        "Shifts": shifts,
        "Limits": [f"- {_plain(limit)}" for limit in card.limits],
        "Made with": [f"- {_plain(name)} {_plain(version)}" for name, version in card.versions.items()],
    }
    shown = ["\n".join([f"## {title}", "", *lines, ""]) for title, lines in sections.items() if lines]
    return text + "\n".join(shown)


def _quality_row(row: Mapping[str, Any]) -> str:
    low, high = _number(row.get("ci_low")), _number(row.get("ci_high"))
    interval = f"{low} to {high}" if low and high else ""
    cells = [str(row.get(name, "")) for name in ("metric", "train", "test", "prevalence")]
    return _row([*cells, _number(row.get("value")), interval, _number(row.get("n"))])


def _threshold_row(threshold: Threshold) -> str:
    start = "not reachable" if threshold.probability is None else f"{threshold.probability:.3f}"
    return _row([f"{threshold.risk:.0%}", start, f"{threshold.coverage:.0%}", str(threshold.n)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def _plain(text: object) -> str:
    """On one line, and nothing in it is HTML."""
    return " ".join(str(text).split()).replace("<", "&lt;")
