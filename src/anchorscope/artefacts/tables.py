"""Tables of a run that are read back: their columns, and that every number fits the model.

A run may come from anybody. A table of another form is refused where it is read, not where a number is missed.
"""

from collections.abc import Mapping

import polars as pl

from anchorscope.artefacts.schema import (
    BAND,
    CURVE_SCHEMA,
    EFFECT_SCHEMA,
    EVIDENCE_ITEM_SCHEMA,
    EVIDENCE_TEST_SCHEMA,
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    FEATURE_SCHEMA,
    ITEM_SCHEMA,
    PART_SCHEMA,
    PATHWAY_SCHEMA,
    SAMPLE_SCHEMA,
    SCORE_SCHEMA,
    SUMMARY_SCHEMA,
    Schema,
)

SCHEMAS: Mapping[str, Schema] = {
    "items": ITEM_SCHEMA,
    "effects": EFFECT_SCHEMA,
    "pathways": PATHWAY_SCHEMA,
    "curves": CURVE_SCHEMA,
    "curve_samples": SAMPLE_SCHEMA,
    "probe_scores": SCORE_SCHEMA,
    "summary": SUMMARY_SCHEMA,
    "experiments": EXPERIMENT_SCHEMA,
    "experiment_items": EXPERIMENT_ITEM_SCHEMA,
    "evidence_parts": PART_SCHEMA,
    "evidence_tests": EVIDENCE_TEST_SCHEMA,
    "evidence_items": EVIDENCE_ITEM_SCHEMA,
    "features": FEATURE_SCHEMA,
}
_ALWAYS = {
    "items": ("dataset", "item_id", "question", "model_answer", "status"),
    "effects": ("dataset", "item_id", "intervention", "logit_clean", "logit_after"),
}
"""Columns without an empty cell."""
_NEEDED = {
    "items": (*_ALWAYS["items"], "answers", "truthful", "pathway"),
    "features": ("item_id",),
}
"""The columns that are read, of tables with many more."""
_LAYERS = ("layer", "reference_layer", "probe_layer")
_OVER_LAYERS = {
    "effects": ("logit_clean", "logit_after"),
    "evidence_items": ("lost", "label_left", "had", "label"),
}
"""Lists with a number per layer."""


def check_table(name: str, table: pl.DataFrame, n_layers: int) -> None:
    """Raises `ValueError` that names the first column of another form."""
    schema = SCHEMAS[name]
    for column in _NEEDED.get(name, schema):
        if column not in table.columns:
            raise ValueError(f"no column {column!r}")
    for column, wanted in schema.items():
        found = table.schema.get(column, pl.Null())
        if not _is_like(found, wanted):
            raise ValueError(f"{found} in the column {column!r}, not {wanted}")
    if name == "items" and not table.height:
        raise ValueError("no row")
    for column in _ALWAYS.get(name, ()):
        if table[column].null_count():
            raise ValueError(f"an empty cell in the column {column!r}")
    _check_layers(name, table, n_layers)


def _is_like(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether values of one type can stand for those of another; a column of nothing but nulls can."""
    if isinstance(found, pl.Null):
        return True
    if isinstance(wanted, pl.List):
        inner = getattr(found, "inner", None)
        return isinstance(found, pl.List) and _is_like(inner, wanted.inner)  # type: ignore[arg-type]
    if isinstance(wanted, pl.Struct):
        return found == wanted
    if wanted.is_float():
        return found.is_numeric()
    if wanted.is_integer():
        return found.is_integer()
    return found == wanted


def _check_layers(name: str, table: pl.DataFrame, n_layers: int) -> None:
    for column in _LAYERS:
        if column in table.columns:
            layers = table[column]
            if name == "evidence_parts":
                layers = layers.filter(layers != BAND).cast(pl.Int64)
            if not layers.drop_nulls().is_between(0, n_layers - 1).all():
                raise ValueError(f"a layer in {column!r} that the model has not")
    for column in _OVER_LAYERS.get(name, ()):
        lengths = table[column].drop_nulls().list.len()
        if not (lengths == n_layers).all():
            raise ValueError(f"a list in {column!r} of another length than the model")
