"""The parts of a bundle under their names: tensors as `NAME/TENSOR`, kind and values below `NAME`.

Importing this file makes every kind of fitted detector known.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from anchorscope.detectors import fitted_parts, fitted_states, training_range  # noqa: F401 - for their kinds
from anchorscope.detectors.fitted import Fitted, Stored, kind_named

_BETWEEN = "/"


def store_named(parts: Mapping[str, Fitted]) -> Stored:
    """The tensors of several detectors under their names, and what else is needed to make them again."""
    tensors: dict[str, Tensor] = {}
    records: dict[str, Any] = {}
    for name, part in parts.items():
        if _BETWEEN in name:
            raise ValueError(f"a part is called {name!r}; {_BETWEEN!r} stands between a part's name and its tensors'")
        own, values = part.stored()
        tensors |= {f"{name}{_BETWEEN}{inside}": tensor for inside, tensor in own.items()}
        records[name] = {"kind": part.kind, "values": values}
    return tensors, records


def load_named(tensors: Mapping[str, Tensor], records: Mapping[str, Any]) -> dict[str, Fitted]:
    """The detectors of what `store_named` gave; tensors of other names are left alone."""
    found: dict[str, Fitted] = {}
    for name, record in records.items():
        start = f"{name}{_BETWEEN}"
        own = {inside.removeprefix(start): tensor for inside, tensor in tensors.items() if inside.startswith(start)}
        found[name] = kind_named(str(record["kind"])).from_stored(own, record["values"])
    return found
