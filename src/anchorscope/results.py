"""The result files of a run, built from the records of its steps, with the columns that other programs rely on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from torch import Tensor

from anchorscope.answers.choose import Asked
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Effect
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.spans.locate import Located
from anchorscope.spans.positions import POSITIONS

ITEM_SCHEMA: dict[str, pl.DataType] = {
    "dataset": pl.String(), "item_id": pl.String(), "question": pl.String(), "answers": pl.List(pl.String()),
    "subject": pl.String(), "relation": pl.String(), "property_words": pl.List(pl.String()),
    "exact_question": pl.List(pl.List(pl.Int64())), "group": pl.Int64(), "model_answer": pl.String(),
    "truthful": pl.Boolean(), "confidence_mean": pl.Float64(), "confidence_min": pl.Float64(), "status": pl.String(),
    "weight": pl.Float64(), "fold": pl.Int64(), "input_ids": pl.List(pl.Int64()),
    "question_tokens": pl.List(pl.Int64()), "answer_tokens": pl.List(pl.Int64()),
    "probe_positions": pl.Struct(dict.fromkeys(POSITIONS, pl.Int64())),
    "pathway": pl.String(), "pathway_corrected": pl.String(), "metadata": pl.String(),
}  # fmt: skip
"""Columns of items.parquet; `metadata` is a JSON object."""


def confidence(answer: Answer) -> tuple[float | None, float | None]:
    """Mean and minimum log-probability of the answer's tokens; None where they are not known."""
    if not answer.log_probs:
        return None, None
    return float(np.mean(answer.log_probs)), float(np.min(answer.log_probs))


def items_frame(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    labels: Sequence[Label],
    located: Sequence[Located | None],
    folds: Mapping[int, int],
    pathways: pl.DataFrame,
    headline: tuple[str, str],
) -> pl.DataFrame:
    """items.parquet: one row per question that was asked, used or not."""
    site, position = headline
    here = pathways.filter((pl.col("site") == site) & (pl.col("position") == position))
    ways = {
        name: dict(here.filter(pl.col("assignment") == name).select("item_id", "pathway").iter_rows())
        for name in ("plain", "corrected")
    }
    rows = []
    for index, (question, answer, label, place) in enumerate(zip(questions, answers, labels, located, strict=True)):
        mean, least = confidence(answer)
        rows.append({
            "dataset": question.dataset, "item_id": question.item_id, "question": question.question,
            "answers": list(question.answers), "subject": question.subject, "relation": question.relation,
            "property_words": list(question.property_words),
            "exact_question": [list(span) for span in question.exact_spans],
            "group": label.group, "model_answer": answer.text, "truthful": label.truthful,
            "confidence_mean": mean, "confidence_min": least, "status": label.status, "weight": label.weight,
            "fold": folds.get(index),
            "input_ids": list(place.input_ids) if place else [],
            "question_tokens": list(place.question_tokens) if place else [],
            "answer_tokens": list(place.answer_tokens) if place else [],
            "probe_positions": dict(zip(POSITIONS, place.positions, strict=True)) if place else None,
            "pathway": ways["plain"].get(question.item_id),
            "pathway_corrected": ways["corrected"].get(question.item_id),
            "metadata": json.dumps(dict(question.metadata), ensure_ascii=False),
        })  # fmt: skip
    return pl.DataFrame(rows, schema=ITEM_SCHEMA)


def unused_frames(
    dataset: str, asked: Asked, answers: Sequence[Answer], labels: Sequence[Label]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Items and counts of a dataset that has too few answers of either kind: none of its items is used."""
    unused = [replace(label, status="too few", weight=0.0) if label.status == "used" else label for label in labels]
    nowhere: list[Located | None] = [None] * len(labels)
    no_ways = pl.DataFrame(schema=dict.fromkeys(("site", "position", "assignment", "item_id", "pathway"), pl.String()))
    items = items_frame(asked.questions, answers, unused, nowhere, {}, no_ways, ("", ""))
    return items, counts_frame(dataset, asked, unused, nowhere)


def effects_frame(
    dataset: str, item_ids: Sequence[str], probes: Sequence[str], positions: Sequence[str],
    clean: np.ndarray, effects: Sequence[Effect],
) -> pl.DataFrame:  # fmt: skip
    """effects.parquet: log-odds of "truthful" over the layers, before and after, per item, intervention and probe."""
    frames = []
    for effect in effects:
        for q, position in enumerate(positions):
            for s, site in enumerate(SITES):
                for p, probe in enumerate(probes):
                    names = {"intervention": effect.intervention, "variant": effect.variant, "probe": probe,
                             "site": site, "position": position}  # fmt: skip
                    frame = pl.DataFrame({
                        "dataset": [dataset] * len(effect.items),
                        "item_id": [item_ids[index] for index in effect.items],
                        **{name: [value] * len(effect.items) for name, value in names.items()},
                        "n_cut": effect.n_cut,
                        "logit_clean": clean[effect.items, q, s, p].tolist(),
                        "logit_after": effect.logits[:, q, s, p].tolist(),
                    }, schema_overrides=dict.fromkeys(("logit_clean", "logit_after"), pl.List(pl.Float32)))  # fmt: skip
                    frames.append(frame)
    return pl.concat(frames)


def counts_frame(
    dataset: str, asked: Asked, labels: Sequence[Label], located: Sequence[Located | None]
) -> pl.DataFrame:
    """What became of the questions of one dataset."""
    used = [label for label in labels if label.status == "used"]
    rules = [place.rule for label, place in zip(labels, located, strict=True) if place and label.status == "used"]
    relations = {question.relation for question in asked.questions if question.relation is not None}
    return pl.DataFrame([{
        "dataset": dataset, "read": asked.read, "bad": asked.bad, "repeated": asked.repeated,
        "few_shot": asked.few_shot, "yes_no": asked.yes_no, "asked": len(asked.questions),
        "empty": sum(label.status == "empty" for label in labels),
        "truncated": sum(label.status == "truncated" for label in labels),
        "true": sum(label.truthful is True for label in labels),
        "false": sum(label.truthful is False for label in labels),
        "used": len(used), "used_true": sum(label.truthful is True for label in used),
        "groups": len({label.group for label in used}), "relations": len(relations),
        **{f"words_by_{rule}": rules.count(rule) for rule in ("own", "metadata", "rules", "model")},
    }])  # fmt: skip


def probe_tensors(dataset: str, probes: Sequence[str], fitted: Mapping[str, ProbeSet]) -> dict[str, Tensor]:
    """probes.safetensors: `DATASET/SITE/POSITION/PROBE/weight` [fold, layer, d_model] and `/bias` [fold, layer]."""
    tensors = {}
    for place, found in fitted.items():
        for index, probe in enumerate(probes):
            name = f"{dataset}/{place}/{probe}"
            tensors[f"{name}/weight"] = found.weight[index].contiguous()
            tensors[f"{name}/bias"] = found.bias[index].contiguous()
    return tensors
