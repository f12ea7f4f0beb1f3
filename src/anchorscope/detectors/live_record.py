"""The numbers of live cuts as they are handed over: probability, ΔP and evidence by layer, and what they cannot say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit
from scipy.stats import norm

from anchorscope.catalogue import KNOCKOUT
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.layer_probes import LayerProbes
from anchorscope.detectors.scoring import Score
from anchorscope.detectors.trained import DetectorSetting

FAINT = 0.5
"""Evidence below this part of what parts true from false answers on average is too little to tell shares of."""

TRANSFER = (
    "The share of the training answers is what the same probe loses when it reads the states without the key words: "
    "how far it carries over (transfer). It is not the share that needs the question: there a regression is fitted "
    "to those states again, and only what it does not find counts as lost."
)
"""What `lost_share` of the training answers is, and is not."""

Layers = Float[np.ndarray, " layer"]


@dataclass(frozen=True)
class QuestionWord:
    """Something that can be cut."""

    start: int
    """Characters [start, end) of the question's text."""
    end: int
    text: str
    key: bool
    """Whether it is one of the key words, which may be several words long."""


@dataclass(frozen=True)
class CutScore:
    """What the detector says of the states without the key words."""

    truth_probability: float
    log_odds: float
    out_of_range: bool
    """Whether these states are unlike those of training."""


@dataclass(frozen=True)
class LiveCuts:
    """One question and answer, clean and cut."""

    score: Score
    """The detector's own."""
    score_cut: CutScore | None
    """None where there are no key words, and where the detector reads a cut itself."""
    generated: bool
    """Whether the model gave the answer."""
    words: tuple[QuestionWord, ...]
    """All that can be cut, in the order of the question."""
    rule: str
    """How the key words were found."""
    chosen: tuple[int, ...] | None
    """Numbers of the words that were cut together because somebody asked for it."""
    setting: DetectorSetting
    probes: LayerProbes | None
    """None in a bundle that has no probes of every layer."""
    log_odds: Mapping[str, Layers] = field(default_factory=dict)
    """By run: `clean`, `knockout` (all key words), `word N`, `chosen`, `random`, `random 2` …"""
    n_cut: Mapping[str, int] = field(default_factory=dict)
    """Tokens that each run was to lose; 0 where there was nothing to cut."""

    def probability(self, run: str) -> Layers | None:
        """Of "truthful", at every layer that has a probe; None where nothing was run."""
        return expit(self.log_odds[run]) if run in self.log_odds else None

    def delta_p(self, run: str) -> Layers | None:
        """Change of that probability, in percentage points."""
        before, after = self.probability(CLEAN), self.probability(run)
        return None if before is None or after is None else 100 * (after - before)

    @property
    def draws(self) -> list[str]:
        """The random cuts."""
        return [run for run in self.log_odds if run.startswith("random")]

    def random_delta_p(self) -> Layers | None:
        """Mean ΔP of the random cuts."""
        found = [self.delta_p(run) for run in self.draws]
        return np.mean(found, axis=0) if found else None  # type: ignore[arg-type]

    def record(self) -> dict[str, Any]:
        """Ready for JSON."""
        told = self.score.record()
        cut = self.score_cut
        return {
            "question": told.pop("question"),
            "answer": told.pop("answer"),
            "generated": self.generated,
            "score": told,
            "score_cut": None
            if cut is None
            else {
                "truth_probability": _rounded(cut.truth_probability),
                "log_odds": _rounded(cut.log_odds),
                "out_of_range": cut.out_of_range,
            },
            "words": [
                {"start": word.start, "end": word.end, "text": word.text, "key": word.key} for word in self.words
            ],
            "key_words_by": self.rule,
            "chosen": None if self.chosen is None else list(self.chosen),
            "position": self.setting.position,
            "edges": self.setting.edges,
            "n_layers": self.setting.n_layers,
            "warnings": self.warnings(),
            **self._by_layer(),
        }

    def warnings(self) -> list[str]:
        """What may make the numbers worth less; those of the score are its own."""
        found = []
        if not self.n_cut.get(KNOCKOUT):
            found.append("no key words found: nothing could be cut")
        if self.probes is None:
            found.append("this bundle has no probes of every layer: train it again with anchorscope detect")
        elif len(self.probes.layers) < self.setting.n_layers:
            found.append(f"{len(self.probes.layers)} of {self.setting.n_layers} layers have a probe in this bundle")
        drawn, wanted = self.n_cut.get("random", 0), self.n_cut.get(KNOCKOUT, 0)
        if drawn < wanted:
            found.append(f"the random cut takes {drawn} tokens, the key words are {wanted}: there are no more others")
        return found

    def _by_layer(self) -> dict[str, Any]:
        """Everything that has a number per layer; nothing without probes."""
        if self.probes is None:
            return {
                "site": None,
                "layers": [],
                "reference_layer": None,
                "probability": None,
                "delta_p": None,
                "evidence": None,
                "training": None,
            }
        alone = [place for place in range(len(self.words)) if f"word {place}" in self.log_odds]
        return {
            "site": self.probes.site,
            "layers": list(self.probes.layers),
            "reference_layer": self.probes.layers[self.probes.reference],
            "probability": {
                "clean": _list(self.probability(CLEAN)),
                "all": _list(self.probability(KNOCKOUT)),
                "chosen": _list(self.probability("chosen")),
                "alone": [{"word": at, "values": _list(self.probability(f"word {at}"))} for at in alone],
                "random": [_list(self.probability(run)) for run in self.draws],
            },
            "delta_p": {
                "all": _list(self.delta_p(KNOCKOUT)),
                "chosen": _list(self.delta_p("chosen")),
                "alone": [{"word": at, "values": _list(self.delta_p(f"word {at}"))} for at in alone],
                "random": _list(self.random_delta_p()),
            },
            "evidence": self._evidence(self.probes),
            "training": _training(self.probes),
        }

    def _evidence(self, probes: LayerProbes) -> dict[str, Any] | None:
        """The item's own evidence, and how much of it the cut takes."""
        if KNOCKOUT not in self.log_odds:
            return None
        clean, cut = item_evidence(probes, self.log_odds[CLEAN], self.log_odds[KNOCKOUT])
        apart = (probes.means[1] - probes.means[0]) / 2
        enough = (apart > 0) & (np.abs(clean) >= FAINT * apart)
        share = np.where(enough, 1 - cut / np.where(enough, clean, 1), np.nan)
        area = float(probes.auc[probes.reference])
        limit = float(norm.cdf(norm.ppf(np.clip(area, 0.5, 1 - 1e-9)) / 2))
        uncut = (
            ""
            if probes.cut_means is not None
            else (
                " The training answers of this bundle were not cut, so the shift that a cut gives to every answer "
                "counts as lost, too."
            )
        )
        return {
            "clean": _list(clean),
            "cut": _list(cut),
            "lost_share": _list(share),
            "reliable": False,
            "note": (
                f"Numbers of one answer. Its share is not reliable: where the probe's AUC is {area:.2f}, no rule can "
                f"tell from the log-odds what a single answer's truth rests on with an AUC above {limit:.2f}."
                f"{uncut}"
            ),
        }


def item_evidence(probes: LayerProbes, clean: Layers, cut: Layers) -> tuple[Layers, Layers]:
    """Log-odds of an item, clean and cut, from the middle between true and false training answers.

    Cutting the question moves every answer towards "false"; where the training answers were cut too, the middle is that
    of the cut ones, so that this common shift is no loss.
    """
    middle = probes.means.mean(axis=0)
    moved = middle if probes.cut_means is None else probes.cut_means.mean(axis=0)
    return clean - middle, cut - moved


def _training(probes: LayerProbes) -> dict[str, Any]:
    """The same of the answers of training, where numbers are means over many.

    The share is what the clean probe loses on cut states, its transfer, and not the share that needs the question.
    """
    lost = None
    if probes.cut_means is not None:
        apart, left = probes.means[1] - probes.means[0], probes.cut_means[1] - probes.cut_means[0]
        lost = _list(np.where(apart > 0, 1 - left / np.where(apart > 0, apart, 1), np.nan))
    moved = probes.delta_p
    return {
        "n": probes.n_items,
        "n_true": probes.n_true,
        "auc": _list(probes.auc),
        "delta_p_false": None if moved is None else _list(moved[0]),
        "delta_p_true": None if moved is None else _list(moved[1]),
        "lost_share": lost,
        "note": None if lost is None else TRANSFER,
    }


def _list(values: Layers | None) -> list[float | None] | None:
    return None if values is None else [_rounded(float(value)) if np.isfinite(value) else None for value in values]


def _rounded(value: float) -> float:
    return round(value, 6)
