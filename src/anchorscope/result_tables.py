"""The result tables of a run, from the records of its steps, with the columns of `schema`."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.artefacts.schema import (
    EFFECT_SCHEMA,
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    ITEM_SCHEMA,
    PATHWAY_COLUMNS,
    UNAVAILABLE_SCHEMA,
)
from anchorscope.catalogue import POSITIONS
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Effect
from anchorscope.experiments.experiment import Found, Statistic
from anchorscope.items import Item
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import ProbeSet


def confidence(answer: Answer) -> tuple[float | None, float | None]:
    """Mean and minimum log-probability of the answer's tokens; None if unknown."""
    if not answer.log_probs:
        return None, None
    return float(np.mean(answer.log_probs)), float(np.min(answer.log_probs))


def items_frame(
    items: Sequence[Item],
    folds: Mapping[int, int],
    pathways: pl.DataFrame | None = None,
    headline: tuple[str, str] = ("", ""),
) -> pl.DataFrame:
    """items.parquet: one row per question asked, used or not; `folds` by index of the item."""
    if pathways is None:
        pathways = pl.DataFrame(schema=dict.fromkeys(PATHWAY_COLUMNS, pl.String()))
    questions, labels = [item.question for item in items], [item.label for item in items]
    answers, located = [item.answer for item in items], [item.tokens for item in items]
    site, position = headline
    headline_pathways = pathways.filter((pl.col("site") == site) & (pl.col("position") == position))
    assigned = {
        name: dict(headline_pathways.filter(pl.col("assignment") == name).select("item_id", "pathway").iter_rows())
        for name in ("plain", "corrected")
    }
    sure = [confidence(answer) for answer in answers]
    to_json = json.JSONEncoder(ensure_ascii=False).encode
    columns: dict[str, Sequence[Any]] = {
        "dataset": [question.dataset for question in questions],
        "item_id": [question.item_id for question in questions],
        "question": [question.question for question in questions],
        "answers": [question.answers for question in questions],
        "subject": [question.subject for question in questions],
        "relation": [question.relation for question in questions],
        "property_words": [question.property_words for question in questions],
        "exact_question": [question.exact_spans for question in questions],
        "question_words": [tokens.words.spans if tokens and tokens.words else () for tokens in located],
        "group": [label.group for label in labels],
        "model_answer": [answer.text for answer in answers],
        "truthful": [label.truthful for label in labels],
        "confidence_mean": [mean for mean, _ in sure],
        "confidence_min": [least for _, least in sure],
        "status": [label.status for label in labels],
        "weight": [label.weight for label in labels],
        "fold": [folds.get(index) for index in range(len(questions))],
        "input_ids": [tokens.input_ids if tokens else () for tokens in located],
        "question_tokens": [tokens.question_tokens if tokens else () for tokens in located],
        "answer_tokens": [tokens.answer_tokens if tokens else () for tokens in located],
        "probe_positions": [
            dict(zip(POSITIONS, tokens.positions, strict=True)) if tokens else None for tokens in located
        ],
        "pathway": [assigned["plain"].get(question.item_id) for question in questions],
        "pathway_corrected": [assigned["corrected"].get(question.item_id) for question in questions],
        "metadata": [to_json(dict(question.metadata)) for question in questions],
        "context": [list(question.context) or None for question in questions],
        "thinking": [question.thinking for question in questions],
    }
    return pl.DataFrame([_column(columns[name], kind).alias(name) for name, kind in ITEM_SCHEMA.items()])


def _column(values: Sequence[Any], kind: Any) -> pl.Series:
    """A column; lists are made from one series of all entries, far faster than one series per list."""
    if not isinstance(kind, pl.List) or None in values:
        return pl.Series(values, dtype=kind)
    rows = np.repeat(np.arange(len(values)), [len(entries) for entries in values])
    entries = _column(list(chain.from_iterable(values)), kind.inner).alias("entry")
    lists = pl.DataFrame([pl.Series("row", rows), entries]).group_by("row", maintain_order=True).agg("entry")
    every = pl.DataFrame({"row": np.arange(len(values))}).join(lists, on="row", how="left", maintain_order="left")
    return every["entry"].fill_null([]).rechunk()


def effects_frame(
    dataset: str,
    item_ids: Sequence[str],
    probes: Sequence[str],
    positions: Sequence[str],
    clean: np.ndarray,
    effects: Sequence[Effect],
) -> pl.DataFrame:
    """effects.parquet: log-odds of "truthful" over the layers, before and after, per item, intervention and probe."""
    frames = []
    for effect in effects:
        for q, position in enumerate(positions):
            for s, site in enumerate(SITES):
                for p, probe in enumerate(probes):
                    names = {"intervention": effect.intervention, "probe": probe, "site": site, "position": position}
                    frame = pl.DataFrame(
                        {
                            "dataset": [dataset] * len(effect.items),
                            "item_id": [item_ids[index] for index in effect.items],
                            **{name: [value] * len(effect.items) for name, value in names.items()},
                            "variant": _variants(effect),
                            "n_cut": effect.n_cut,
                            "n_candidates": _nullable_column(effect.n_candidates, pl.Int64, len(effect.items)),
                            "attention_ratio": _nullable_column(effect.attention_ratio, pl.Float64, len(effect.items)),
                            "logit_clean": _layer_lists(clean[effect.items, q, s, p]),
                            "logit_after": _layer_lists(effect.logits[:, q, s, p]),
                        }
                    )
                    frames.append(frame)
    return pl.concat(frames).select(*EFFECT_SCHEMA)


def _nullable_column(values: np.ndarray | None, kind: type[pl.DataType], n: int) -> pl.Series:
    """A column, or nulls."""
    return pl.Series([None] * n if values is None else values, dtype=kind)


def _variants(effect: Effect) -> list[str]:
    """Each row's name: the cut edges, or the number of its donor."""
    if effect.run is None or not effect.run.any():
        return [effect.variant] * len(effect.items)
    return [f"{effect.variant} {run + 1}" for run in effect.run]


def _layer_lists(log_odds: np.ndarray) -> pl.Series:
    """A column of lists from [item, layer], without Python numbers in between."""
    return pl.Series(np.ascontiguousarray(log_odds, dtype=np.float32)).arr.to_list()


def counts_frame(dataset: str, sample: QuestionSample, items: Sequence[Item]) -> pl.DataFrame:
    labels, used = [item.label for item in items], [item for item in items if item.is_used]
    rules = [item.tokens.rule for item in used if item.tokens is not None]
    relations = {item.question.relation for item in items if item.question.relation is not None}
    return pl.DataFrame(
        [
            {
                "dataset": dataset,
                "read": sample.read,
                "bad": sample.bad,
                "repeated": sample.repeated,
                "few_shot": sample.few_shot,
                "yes_no": sample.yes_no,
                "asked": len(items),
                "empty": sum(label.status == "empty" for label in labels),
                "truncated": sum(label.status == "truncated" for label in labels),
                "too_long": sum(label.status == TOO_LONG for label in labels),
                "true": sum(label.truthful is True for label in labels),
                "false": sum(label.truthful is False for label in labels),
                "used": len(used),
                "used_true": sum(item.label.truthful is True for item in used),
                "supplied": sum(item.question.model_answer is not None for item in items),
                "supplied_labels": sum(None not in (item.question.truthful, item.label.truthful) for item in items),
                "groups": len({item.label.group for item in used}),
                "relations": len(relations),
                **{f"words_by_{rule}": rules.count(rule) for rule in ("own", "metadata", "rules")},
            }
        ]
    )


def probe_tensors(dataset: str, probes: Sequence[str], fitted: Mapping[str, ProbeSet]) -> dict[str, Tensor]:
    """probes.safetensors: `DATASET/SITE/POSITION/PROBE/weight` [fold, layer, d_model] and `/bias` [fold, layer]."""
    tensors = {}
    for location, probe_set in fitted.items():
        for index, probe in enumerate(probes):
            name = f"{dataset}/{location}/{probe}"
            tensors[f"{name}/weight"] = probe_set.weight[index].contiguous()
            tensors[f"{name}/bias"] = probe_set.bias[index].contiguous()
    return tensors


def experiments_frame(
    model: str, dataset: str, headline: tuple[str, str], results: Mapping[str, Found]
) -> pl.DataFrame:
    """experiments.csv: one statistic per row."""
    site, position = headline
    headline_columns = {"model": model, "dataset": dataset, "site": site, "position": position}
    rows = [
        {**headline_columns, "experiment": name, **_statistic_row(statistic)}
        for name, result in results.items()
        for statistic in result.statistics
    ]
    return pl.DataFrame(rows, schema=EXPERIMENT_SCHEMA)


def _statistic_row(statistic: Statistic) -> dict[str, object]:
    values = {**vars(statistic), **vars(statistic.estimate)}
    del values["estimate"]
    return {name: _finite_or_none(value) if isinstance(value, float) else value for name, value in values.items()}


def experiment_items_frame(dataset: str, item_ids: Sequence[str], results: Mapping[str, Found]) -> pl.DataFrame:
    """experiment_items.parquet: one number of one item per row."""
    frames = [pl.DataFrame(schema=EXPERIMENT_ITEM_SCHEMA)]
    for name, result in results.items():
        for item_values in result.values:
            columns = {
                "dataset": [dataset] * len(item_values.items),
                "item_id": [item_ids[index] for index in item_values.items],
                "experiment": [name] * len(item_values.items),
                "variant": [item_values.variant] * len(item_values.items),
                "quantity": [item_values.quantity] * len(item_values.items),
                "value": [_finite_or_none(float(value)) for value in item_values.values],
            }
            frames.append(pl.DataFrame(columns, schema=EXPERIMENT_ITEM_SCHEMA))
    return pl.concat(frames)


def unavailable_frame(dataset: str, missing: Sequence[Missing]) -> pl.DataFrame:
    """What can't be done on a dataset, with the reason."""
    rows = [(dataset, entry.experiment, entry.reason) for entry in missing]
    return pl.DataFrame(rows, schema=UNAVAILABLE_SCHEMA, orient="row")


def _finite_or_none(value: float | None) -> float | None:
    """Missing values are null in the tables, never NaN."""
    return value if value is not None and math.isfinite(value) else None
