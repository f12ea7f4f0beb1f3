"""The columns of every file of a run folder, and the version of the whole.

Other programs rely on these names. A column is added at will; one that is renamed, dropped or given another meaning
raises `SCHEMA_VERSION`, and folders of other versions are then read as what they are or refused in one line.
"""

from collections.abc import Mapping

import polars as pl

from anchorscope.catalogue import POSITIONS, SAMPLES

SCHEMA_VERSION = 3
"""1 had no index of its own files, no keys of steps and no version; 2 had `pathway_retained` in items.parquet."""

ITEM_SCHEMA: dict[str, pl.DataType] = {
    "dataset": pl.String(),
    "item_id": pl.String(),
    "question": pl.String(),
    "answers": pl.List(pl.String()),
    "subject": pl.String(),
    "relation": pl.String(),
    "property_words": pl.List(pl.String()),
    "exact_question": pl.List(pl.List(pl.Int64())),
    "question_words": pl.List(pl.List(pl.Int64())),
    "group": pl.Int64(),
    "model_answer": pl.String(),
    "truthful": pl.Boolean(),
    "confidence_mean": pl.Float64(),
    "confidence_min": pl.Float64(),
    "status": pl.String(),
    "weight": pl.Float64(),
    "fold": pl.Int64(),
    "input_ids": pl.List(pl.Int64()),
    "question_tokens": pl.List(pl.Int64()),
    "answer_tokens": pl.List(pl.Int64()),
    "probe_positions": pl.Struct(dict.fromkeys(POSITIONS, pl.Int64())),
    "pathway": pl.String(),
    "pathway_corrected": pl.String(),
    "question_share": pl.Float64(),
    "question_share_low": pl.Float64(),
    "question_share_high": pl.Float64(),
    "pathway_call": pl.String(),
    "metadata": pl.String(),
}
"""items.parquet; `exact_question` are the user's own spans, `question_words` those that were used for E_Q, `metadata`
is a JSON object."""
EFFECT_SCHEMA: dict[str, pl.DataType] = {
    "dataset": pl.String(),
    "item_id": pl.String(),
    "intervention": pl.String(),
    "variant": pl.String(),
    "probe": pl.String(),
    "site": pl.String(),
    "position": pl.String(),
    "n_cut": pl.Int64(),
    "n_candidates": pl.Int64(),
    "attention_ratio": pl.Float64(),
    "logit_clean": pl.List(pl.Float32()),
    "logit_after": pl.List(pl.Float32()),
}
"""effects.parquet; `n_candidates` tokens there were to draw the cut ones from, `attention_ratio` is the attention that
the cut tokens receive in the clean run over that of E_Q; null where it does not apply."""
CURVE_COLUMNS = (
    "model",
    "dataset",
    "intervention",
    "variant",
    "site",
    "position",
    "assignment",
    "group",
    "truth",
    "layer",
    "delta_p",
    "ci_low",
    "ci_high",
    "n",
    "n_groups",
)
"""curves.csv; reference_curves.csv has `shift` besides."""
SAMPLE_SCHEMA: dict[str, pl.DataType] = {
    "dataset": pl.String(),
    "site": pl.String(),
    "position": pl.String(),
    "assignment": pl.String(),
    "group": pl.String(),
    "layer": pl.Int64(),
    "delta_p": pl.List(pl.Float32()),
}
"""curve_samples.parquet: `delta_p` runs over the draws, first the sample itself, then every resample."""
SCORE_COLUMNS = (
    "model",
    "dataset",
    "intervention",
    "kind",
    "site",
    "position",
    "layer",
    "auc",
    "ci_low",
    "ci_high",
    "log_loss",
    "brier",
    "n",
    "n_groups",
)
"""probe_scores.csv."""
SHARE_SCHEMA: dict[str, pl.DataType] = {
    "model": pl.String(),
    "dataset": pl.String(),
    "intervention": pl.String(),
    "site": pl.String(),
    "position": pl.String(),
    "layer": pl.Int64(),
    "group": pl.String(),
    "truth": pl.String(),
    "share": pl.Float64(),
    "ci_low": pl.Float64(),
    "ci_high": pl.Float64(),
    "n": pl.Int64(),
    "n_groups": pl.Int64(),
    "method": pl.String(),
}
"""question_share.csv: Λ per cut, place, layer and group."""
SHARE_COLUMNS = tuple(SHARE_SCHEMA)
"""The same, names alone."""
SHARE_ITEM_SCHEMA: dict[str, pl.DataType] = {
    "dataset": pl.String(),
    "item_id": pl.String(),
    "intervention": pl.String(),
    "site": pl.String(),
    "position": pl.String(),
    "lost": pl.List(pl.Float32()),
    "had": pl.List(pl.Float32()),
}
"""question_share_items.parquet: lists over layers; the share of any set of items is sum(lost) / sum(had)."""
SHARE_TEST_SCHEMA: dict[str, pl.DataType] = {
    "model": pl.String(),
    "dataset": pl.String(),
    "site": pl.String(),
    "position": pl.String(),
    "layer": pl.Int64(),
    "quantity": pl.String(),
    "intervention": pl.String(),
    "group": pl.String(),
    "value": pl.Float64(),
    "ci_low": pl.Float64(),
    "ci_high": pl.Float64(),
    "p_value": pl.Float64(),
    "n": pl.Int64(),
    "method": pl.String(),
}
"""question_share_tests.csv: what follows from the share at the headline place and layer, one number per row."""
SHARE_CALL_SCHEMA: dict[str, pl.DataType] = {
    "item_id": pl.String(),
    "question_share": pl.Float64(),
    "question_share_low": pl.Float64(),
    "question_share_high": pl.Float64(),
    "pathway_call": pl.String(),
}
"""What items.parquet says of a used item's share."""
SUMMARY_COLUMNS = (
    "dataset",
    "site",
    "position",
    "assignment",
    "intervention",
    "group",
    "quantity",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "method",
)
"""summary.csv: one quantity per row."""
PATHWAY_COLUMNS = ("dataset", "item_id", "site", "position", "assignment", "probe", "reference_layer", "pathway")
"""pathways.parquet."""
EXPERIMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "dataset": pl.String,
    "site": pl.String,
    "position": pl.String,
    "experiment": pl.String,
    "variant": pl.String,
    "against": pl.String,
    "assignment": pl.String,
    "group": pl.String,
    "truth": pl.String,
    "layer": pl.Int64,
    "probe_layer": pl.Int64,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "p_value": pl.Float64,
    "q_value": pl.Float64,
    "method": pl.String,
}
"""experiments.csv: one statistic per row."""
EXPERIMENT_ITEM_SCHEMA: dict[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "item_id": pl.String,
    "experiment": pl.String,
    "variant": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
}
"""experiment_items.parquet: one number of one item per row."""
FEATURE_SCHEMA: dict[str, pl.DataType] = {
    "item_id": pl.String(),
    **dict.fromkeys(
        (
            "answer_tokens",
            "log_prob_mean",
            "log_prob_min",
            "log_prob_first",
            "margin_first",
            "entropy_mean",
            "knockout_log_prob_mean",
            "knockout_log_prob_min",
            "random_log_prob_mean",
            "random_log_prob_min",
            "p_true",
            *(f"{name}_{n}" for n in SAMPLES for name in ("self_consistency", "semantic_entropy")),
        ),
        pl.Float64(),
    ),
}
"""states/DATASET/features.parquet (`--keep detection`): what detectors read of the used items beside their states."""
UNAVAILABLE_SCHEMA: dict[str, type[pl.DataType]] = {"dataset": pl.String, "experiment": pl.String, "reason": pl.String}
"""What was asked for and cannot be done, with the reason; in the manifest."""

DETECTION_VERSION = 1
"""Of the folder that `anchorscope detect` writes; raised as `SCHEMA_VERSION` is."""
DETECTOR_SCHEMA: dict[str, pl.DataType] = {
    "detector": pl.String(),
    "train": pl.String(),
    "test": pl.String(),
    "metric": pl.String(),
    "prevalence": pl.String(),
    "value": pl.Float64(),
    "ci_low": pl.Float64(),
    "ci_high": pl.Float64(),
    "n": pl.Int64(),
    "passes": pl.Int64(),
}
"""detectors.csv: one number per row. `train` and `test` are datasets; `train` is `all but X` where every dataset but
the tested one was learned from, `test` is `X (prompt NAME)` where the questions were put another way. The metric
`auroc-spread` is the standard deviation of the AUROC over the seeds of the folds."""
DETECTOR_DIFFERENCE_SCHEMA: dict[str, pl.DataType] = {
    "detector": pl.String(),
    "against": pl.String(),
    "train": pl.String(),
    "test": pl.String(),
    "metric": pl.String(),
    "prevalence": pl.String(),
    "difference": pl.Float64(),
    "ci_low": pl.Float64(),
    "ci_high": pl.Float64(),
    "n": pl.Int64(),
}
"""differences.csv: the metric of `detector` minus that of `against`, both on the same items in the same resamples."""
DETECTOR_CURVE_SCHEMA: dict[str, pl.DataType] = {
    "detector": pl.String(),
    "train": pl.String(),
    "test": pl.String(),
    "prevalence": pl.String(),
    "curve": pl.String(),
    "x": pl.Float64(),
    "y": pl.Float64(),
    "weight": pl.Float64(),
}
"""detector_curves.csv: points of the curves. `roc`: share of false answers and of true answers that are accepted;
`risk-coverage`: share of answers that are accepted and share of false ones among them; `reliability`: mean probability
and share of true answers in a bin, `weight` the bin's share of the items."""
DETECTOR_CONTROL_SCHEMA: dict[str, pl.DataType] = {
    "control": pl.String(),
    "detector": pl.String(),
    "train": pl.String(),
    "value": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
}
"""controls.csv: `permuted-labels`, the mean AUROC with labels tossed and its interval, for all detectors
together (Bonferroni); `random-cut`, the
AUROC with the knockout minus that of the same detector with a random cut, and its interval; `label-noise`, the AUROC
and the band that the grader's error leaves for it. `train` is the dataset that was learned and tested."""


def empty(schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    """A table of these columns without rows."""
    return pl.DataFrame(schema=schema)
