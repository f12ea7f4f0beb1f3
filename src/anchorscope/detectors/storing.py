"""Fitted detectors as tensors and plain values, and back: a register of their kinds, and parts inside parts.

A detector that is made of others stores each under a name of its own: its tensors as `NAME/TENSOR`, its kind and values
below `NAME` in a mapping of parts.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from anchorscope.detectors import fitted_parts, fitted_states  # noqa: F401 - their kinds are registered
from anchorscope.detectors.fitted import KINDS, Fitted
from anchorscope.errors import UserError

Kind = TypeVar("Kind", bound=type[Any])
_BETWEEN = "/"



def register(kind: Kind) -> Kind:
    """Makes a kind of fitted detector known to bundles; used as a decorator."""
    if KINDS.setdefault(kind.kind, kind) is not kind:
        raise ValueError(f"two kinds of fitted detectors are called {kind.kind!r}")
    return kind


def store_parts(parts: Mapping[str, Fitted]) -> tuple[dict[str, Tensor], dict[str, Any]]:
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


def load_parts(tensors: Mapping[str, Tensor], records: Mapping[str, Any]) -> dict[str, Fitted]:
    """The detectors of what `store_parts` gave; tensors of other names are left alone."""
    found: dict[str, Fitted] = {}
    for name, record in records.items():
        kind = str(record["kind"])
        if kind not in KINDS:
            raise UserError(
                f"it holds a detector of the unknown kind {kind!r}; known here: {', '.join(sorted(KINDS))}. "
                f"Load it with the version of anchorscope that made it"
            )
        start = f"{name}{_BETWEEN}"
        own = {inside.removeprefix(start): tensor for inside, tensor in tensors.items() if inside.startswith(start)}
        found[name] = KINDS[kind].from_stored(own, record["values"])
    return found
