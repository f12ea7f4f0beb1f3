"""The types of records that travel between the coordinator and its workers: no other is ever made from bytes."""

from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TypeVar, get_args

from anchorscope.engine.capture import AnswerStats, AttentionMass, EdgeCounts
from anchorscope.engine.decode import Decoded, Sampling
from anchorscope.engine.saliency import Saliency
from anchorscope.engine.sequences import Cut, Patch, TokenSequence, Variant
from anchorscope.execute.parts import Part, VariantPart
from anchorscope.execute.worker import Shard
from anchorscope.plan.passes import OutOfFoldProbes
from anchorscope.probes.crossfit import FinalProbe, ProbeSet, Splits
from anchorscope.question_share.evidence import Lost
from anchorscope.question_share.shares import ShareItems, Shares

T = TypeVar("T")
_known: dict[str, type] = {}
_HOMES = ("anchorscope.evidence.tables",)  # modules above this one that let their types travel; imported when one comes


def known(cls: type[T]) -> type[T]:
    """Lets a frozen dataclass or a named tuple travel; also a decorator."""
    if not (is_dataclass(cls) or hasattr(cls, "_fields")) or _known.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"{cls.__module__}.{cls.__name__}: only dataclasses travel, each under a name of its own")
    if is_dataclass(cls) and not all(one.init and not one.kw_only for one in fields(cls)):
        raise ValueError(f"{cls.__module__}.{cls.__name__} does not take all of its parts in their order")
    if not part_names(cls):
        raise ValueError(f"{cls.__module__}.{cls.__name__} has no parts that could travel")
    return cls


def part_names(cls: type) -> list[str]:
    """The names of a record's parts."""
    return list(cls._fields) if hasattr(cls, "_fields") else [one.name for one in fields(cls)]


def travels(cls: type) -> bool:
    """Whether records of a type travel."""
    return _known.get(cls.__name__) is cls


def known_type(name: str) -> type | None:
    """The type of this name; None where none travels under it."""
    if name not in _known:
        for home in _HOMES:
            import_module(home)
    return _known.get(name)


for _one in (
    *get_args(Shard),
    *get_args(Part),
    AnswerStats,
    AttentionMass,
    Cut,
    Decoded,
    EdgeCounts,
    FinalProbe,
    Lost,
    Patch,
    OutOfFoldProbes,
    ProbeSet,
    Saliency,
    Sampling,
    ShareItems,
    Shares,
    Splits,
    TokenSequence,
    Variant,
    VariantPart,
):
    known(_one)
