"""What a detector reads of an item, states and plain numbers, and how each is made for an item that is being scored.

A run is named as in the result files. A new answer is scored by one pass, the run `clean`; `question-only` is the same
pass, read before the answer begins. Detectors that read other runs (strengthened attention, random weights) can be
compared, and not used. All states are those of one position.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError

CLEAN = "clean"
StateKey = tuple[str, str, int]
"""(run, site, layer) of states."""
QUESTION_ONLY = "question-only"
"""The clean pass, read before the answer begins."""
QUESTION_ORTHOGONAL = "question-orthogonal"
"""h − (h·q / q·q) q: the clean state without its part along the state before the answer begins (QAOD,
arXiv:2605.14449)."""
TEXTS = ("question_text", "answer_text")
"""The two columns of text; either may have several lines."""
TEXT_STATE: StateKey = ("text", "hashed words", 0)
ANSWER_TOKENS, RAUQ = "answer_tokens", "rauq"
TEXT_BUCKETS = 2048


def text_columns(
    questions: Sequence[str], answers: Sequence[str]
) -> dict[str, Shaped[np.ndarray, " item"]]:
    """The columns `TEXTS`."""
    columns = (np.array(texts, dtype=object) for texts in (questions, answers))
    return dict(zip(TEXTS, columns, strict=True))


def hash_texts(
    questions: Iterable[str], answers: Iterable[str]
) -> Float[Tensor, "item bucket"]:
    """Words (of one letter, too) and pairs of them, counted in buckets: half for the question, half for the answer."""
    from sklearn.feature_extraction.text import (
        HashingVectorizer,
    )  # only here: it takes a second

    vectorizer = HashingVectorizer(
        n_features=TEXT_BUCKETS // 2,
        ngram_range=(1, 2),
        alternate_sign=False,
        token_pattern=r"\b\w+\b",
    )
    counts = np.concatenate(
        [vectorizer.transform(part).toarray() for part in (questions, answers)], axis=1
    )
    # as large as states are
    return torch.from_numpy((counts * TEXT_BUCKETS**0.5).astype(np.float32))


def needs_of(key: StateKey) -> "Needs":
    """What has to be measured for the states of a key."""
    if key == TEXT_STATE:
        return Needs(columns=TEXTS)
    runs = (CLEAN, QUESTION_ONLY) if key[0] == QUESTION_ORTHOGONAL else key[:1]
    return Needs(tuple((run, *key[1:]) for run in runs))


@dataclass(frozen=True)
class Needs:
    states: tuple[StateKey, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run for run, _, _ in self.states))

    @property
    def reads_model(self) -> bool:
        """Whether the model has to be run for it."""
        return bool(self.states) or not set(self.columns) <= {ANSWER_TOKENS, *TEXTS}

    @staticmethod
    def together(several: "Iterable[Needs]") -> "Needs":
        parts = tuple(several)
        states, columns = (
            [key for part in parts for key in getattr(part, name)]
            for name in ("states", "columns")
        )
        return Needs(tuple(dict.fromkeys(states)), tuple(dict.fromkeys(columns)))


@dataclass(frozen=True)
class Features:
    """States and plain numbers of some items."""

    n_items: int
    states: Mapping[StateKey, Float[Tensor, "item d_model"]]
    columns: Mapping[str, Shaped[np.ndarray, " item"]]
    """Numbers, and the two of `TEXTS`."""

    def take(self, items: Sequence[int] | Int[np.ndarray, " chosen"]) -> "Features":
        chosen = np.asarray(items, dtype=np.int64)
        index = torch.from_numpy(chosen)
        states = {
            key: values[index.to(values.device)] for key, values in self.states.items()
        }
        return Features(
            len(chosen),
            states,
            {name: values[chosen] for name, values in self.columns.items()},
        )

    def only(self, needs: Needs) -> "Features":
        """What is needed; KeyError where it is not present."""
        states = {key: self.states[key] for key in needs.states}
        return Features(
            self.n_items, states, {name: self.columns[name] for name in needs.columns}
        )

    def state(self, key: StateKey) -> Float[Tensor, "item d_model"]:
        """States of a key: those of a run, or what is computed from them."""
        run, site, layer = key
        if key == TEXT_STATE:
            questions, answers = (self.columns[name] for name in TEXTS)
            return hash_texts(questions, answers)
        if run == QUESTION_ORTHOGONAL:
            states = self.states[CLEAN, site, layer].double()
            along = self.states[QUESTION_ONLY, site, layer].double().to(states.device)
            length = along.square().sum(-1, keepdim=True).clamp(min=1e-12)
            share = (states * along).sum(-1, keepdim=True) / length
            return states - share * along
        return self.states[key]


Statistics = Float[np.ndarray, "statistic answer_token"]
"""Log-probability, margin and entropy of an answer's tokens."""

COLUMNS: Mapping[str, Callable[[Statistics], float]] = {
    "log_prob_mean": lambda statistics: float(statistics[0].mean()),
    "log_prob_min": lambda statistics: float(statistics[0].min()),
    "log_prob_first": lambda statistics: float(statistics[0, 0]),
    "margin_first": lambda statistics: float(statistics[1, 0]),
    "entropy_mean": lambda statistics: float(statistics[2].mean()),
}
"""Confidence by name, as `run --keep detection` names its columns, made of the clean run."""
CONFIDENCE = tuple(COLUMNS)
"""The model's confidence in its answer: mean, least and first log-probability of the answer's tokens, the first
token's lead over the next best one, and the mean entropy of the distributions that the tokens were drawn from."""

MEASURED = (*CONFIDENCE, ANSWER_TOKENS, *TEXTS, RAUQ)
"""Columns that a new answer has."""


def refuse_unknown(needs: Needs, n_layers: int) -> None:
    """A detector that reads what cannot be measured of a new item is refused before anything is run."""
    runs = [
        f"states of the run {run!r}"
        for run in needs.runs
        if run not in (CLEAN, QUESTION_ONLY)
    ]
    for unknown in (
        *runs,
        *(repr(name) for name in needs.columns if name not in MEASURED),
    ):
        raise UserError(
            f"The detector reads {unknown}, not measured of new answers (measured: {', '.join(MEASURED)}): it can be "
            f"compared (anchorscope detect) but not used for scoring; choose another detector."
        )
    for _, site, layer in needs.states:
        if site not in SITES or not 0 <= layer < n_layers:
            raise UserError(
                f"The detector reads site {site!r} of layer {layer}; the model has {', '.join(SITES)} of layers 0 to "
                f"{n_layers - 1}. Train it on this model."
            )
