"""What the answer card says, put together from the readings of a run: its sentence and its four tiles.

One dataset is told with intervals and layers; of several, ranges and names are told, and the numbers stand below.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from anchorscope.report.findings import Findings, auc_of, nested_auc
from anchorscope.report.palette import display_name
from anchorscope.report.shares import (
    NEEDS_QUESTION,
    PARTS,
    PROBE,
    TOGETHER,
    band_layers,
    result_of,
    share_at,
    share_layer,
    truth_readers,
    why_silent,
)
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.statement import Reading, estimate_in
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import MISSING, as_percent, estimate, listing, number, short_percent, spanned
from anchorscope.stats.estimate import Estimate

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
"""How a verdict is shown in one sign."""


@dataclass(frozen=True)
class Tile:
    """One of the four."""

    label: str
    """What is asked."""
    figure: str
    """The number that stands large."""
    detail: str
    """What stands beside it, in a sentence or two."""
    verdict: Verdict
    """Yes, no or undecided."""

    @property
    def mark(self) -> str:
        """✓, ✗ or ?."""
        return MARKS[self.verdict]


@dataclass(frozen=True)
class CardWords:
    """The readings of a run, told over all its datasets."""

    findings: Findings
    observations: Sequence[Reading]

    def one(self, dataset: str, claim: str) -> Reading | None:
        """The reading of one dataset, whatever rule sorts."""
        wanted = (dataset, None, claim)
        return next((o for o in self.observations if (o["dataset"], o["assignment"], o["claim"]) == wanted), None)

    def verdict(self, *claims: str) -> Verdict:
        """On all datasets and all of these claims together; one that was not asked is undecided."""
        found = [self.one(dataset, claim) for dataset in self.findings.datasets for claim in claims]
        return all_of([one["verdict"] if one else "undecided" for one in found])

    def over(self, measure: Callable[[str], Estimate | None], show: Callable[[float], str]) -> str:
        """The smallest to the largest over the datasets."""
        found = [measure(dataset) for dataset in self.findings.datasets]
        return spanned((one.value for one in found if one is not None), show) or MISSING

    def figure(self, measure: Callable[[str], Estimate | None], digits: int, scale: float, unit: str) -> str:
        """With its interval where there is one dataset, as a range where there are several."""
        if len(self.findings.datasets) == 1:
            return estimate(measure(self.findings.datasets[0]), digits, scale, unit)
        found = self.over(measure, lambda value: number(value * scale, digits))
        return found if found == MISSING else found + unit

    def each(self, tell: Callable[[str], str]) -> str:
        """A phrase per dataset, named where there are several."""
        if len(self.findings.datasets) == 1:
            return tell(self.findings.datasets[0])
        return ", ".join(f"{display_name(dataset)} {tell(dataset)}" for dataset in self.findings.datasets)

    @property
    def several(self) -> bool:
        """Whether datasets have to be named."""
        return len(self.findings.datasets) > 1

    def share(self, dataset: str, part: str = TOGETHER, intervention: str = "knockout") -> Estimate | None:
        """Over the band; None where nothing may be said of the dataset."""
        return None if why_silent(self.findings, dataset) else share_at(self.findings, dataset, intervention, part)

    # The sentence

    def answer(self) -> str:
        """What the evidence rests on, what random words do, and what is not said for want of answers."""
        spoken = [name for name in self.findings.datasets if why_silent(self.findings, name) is None]
        sentences = []
        if spoken:
            parts = {part: self.over(partial(self.share, part=part), as_percent) for part in PARTS}
            needs, random = (
                self.over(partial(self.share, part=NEEDS_QUESTION, intervention=cut), as_percent)
                for cut in ("knockout", "random")
            )
            where = f" on {listing([display_name(name) for name in spoken])}" if self.several else ""
            only = self._with_interval(spoken[0]) if len(spoken) == 1 else parts[TOGETHER]
            sentences.append(
                f"Of the probe's evidence{where}, {only} needs question and answer together; the question alone "
                f"carries {parts['question']}, the answer alone {parts['answer']}, either of them {parts['either']}. "
                f"{needs} needs the question's key words, {random} needs random words{self._caveat(spoken)}."
            )
        silent = {name: why_silent(self.findings, name) for name in self.findings.datasets}
        sentences += [f"No shares of {display_name(name)}: {reason}." for name, reason in silent.items() if reason]
        return " ".join(sentences)

    def _with_interval(self, dataset: str) -> str:
        return _share(self.share(dataset))

    def _caveat(self, spoken: Sequence[str]) -> str:
        """Where random words may do as much, or their control of the same number has failed."""
        doubtful = [
            display_name(name)
            for name in spoken
            if any((self.one(name, claim) or {"verdict": "undecided"})["verdict"] != "holds" for claim in _OWN_CONTROLS)
        ]
        if not doubtful:
            return ""
        return f" (a control does not hold{f' on {listing(doubtful)}' if self.several else ''})"

    def _by_verdict(self, claim: str) -> dict[str, list[str]]:
        """The datasets by what is said of them, best first; one that was not asked is undecided."""
        by: dict[str, list[str]] = {verdict: [] for verdict in MARKS}
        for dataset in self.findings.datasets:
            by[(self.one(dataset, claim) or {"verdict": "undecided"})["verdict"]].append(display_name(dataset))
        return {verdict: names for verdict, names in by.items() if names}

    # The tiles

    def probe_tile(self) -> Tile:
        """Does the probe add to the model's own confidence, and read truth better than words do?"""
        findings = self.findings

        def gain(dataset: str) -> Estimate | None:
            return estimate_in(self.one(dataset, "adds_to_confidence"))

        def tell(dataset: str) -> str:
            both, alone = (
                nested_auc(findings, dataset, kind="nested+confidence"),
                auc_of(findings, dataset, "confidence-mean", None),
            )
            parts = [f"AUC {_auc(nested_auc(findings, dataset))}, confidence {_auc(alone)}, both {_auc(both)}"]
            others = {name: one for name, one in truth_readers(findings, dataset).items() if name != PROBE}
            if others:
                best = max(others, key=lambda name: others[name].value)
                parts.append(f"{best} {_auc(others[best])}")
            return ", ".join(parts)

        aucs = (
            self.each(tell)
            if not self.several
            else (
                f"AUC of the probe {self.over(lambda one: nested_auc(findings, one), _plain)}, of confidence "
                f"{self.over(lambda one: auc_of(findings, one, 'confidence-mean', None), _plain)}"
            )
        )
        asked = any(one["claim"] == "auc_above_nulls" for one in self.observations)
        others = "auc_above_nulls" if asked else "beats_baselines"  # older runs have no probes that see less
        told = (
            f"Over confidence alone: {self._verdicts('adds_to_confidence')}. Over words and base rates: "
            f"{self._verdicts(others)}."
        )
        figure = self.figure(gain, 2, 1.0, "")
        figure = figure if figure == MISSING or figure.startswith("−") else f"+{figure}"
        return Tile(
            "Does the probe know more than confidence and words?",
            f"{figure} AUC",
            f"{told} {aucs}.",
            self.verdict("adds_to_confidence", others),
        )

    def _verdicts(self, claim: str) -> str:
        """yes, no or undecided; of several datasets that do not agree, which is which."""
        by = self._by_verdict(claim)
        return (
            _YES[next(iter(by))]
            if len(by) < 2
            else ", ".join(f"{_YES[verdict]} on {listing(names)}" for verdict, names in by.items())
        )

    def together_tile(self) -> Tile:
        """The part that needs both, with the other three beside it."""

        def describe(dataset: str) -> str:
            if reason := why_silent(self.findings, dataset):
                return f"no shares: {reason}"
            parts = [f"{words} {short_percent(self.share(dataset, part))}" for part, words in PARTS.items()]
            if self.several:
                return short_percent(self.share(dataset))
            return f"{', '.join(parts[1:])}; layers {band_layers(self.findings, dataset)}"

        return Tile(
            "How much of its evidence needs question and answer together?",
            self.figure(self.share, 0, 100.0, "\u00a0%"),
            f"{_capital(self.each(describe))}.",
            self.verdict("needs_both", *_OWN_CONTROLS),
        )

    def question_tile(self) -> Tile:
        """What needs the key words, beyond what needs random words."""

        def gap(dataset: str) -> Estimate | None:
            result = result_of(self.findings, dataset, "above_random", NEEDS_QUESTION)
            return result.estimate if result and why_silent(self.findings, dataset) is None else None

        def describe(dataset: str) -> str:
            needs, random = (self.share(dataset, NEEDS_QUESTION, cut) for cut in ("knockout", "random"))
            if needs is None:
                return "not measured"
            return f"key words {short_percent(needs)}, random words {short_percent(random)}"

        return Tile(
            "How much more needs the key words than random words?",
            self.figure(gap, 0, 100.0, " points"),
            f"{_capital(self.each(describe))}.",
            self.verdict("share_beyond_random", *_OWN_CONTROLS),
        )

    def controls_tile(self) -> Tile:
        """Which controls fail, or may; at which layers."""
        asked = [one for one in self.observations if one["claim"] in _CONTROLS and one["key"]]
        failed = [one for one in asked if one["verdict"] == "does not hold"]
        undecided = [one for one in asked if one["verdict"] == "undecided"]
        verdict: Verdict = "does not hold" if failed else "undecided" if undecided or not asked else "holds"
        all_of_them = f"of {len(asked)} controls"
        figure = (
            f"{len(failed)} {all_of_them}"
            if failed
            else MISSING
            if not asked
            else f"nothing surely; {len(undecided)} {all_of_them} undecided"
            if undecided
            else "nothing"
        )
        details = [
            self._failing([one for one in failed if one["claim"] == claim])
            for claim in dict.fromkeys(one["claim"] for one in failed)
        ]
        if any("*" in detail for detail in details):
            details.append("(* Also at the tested layer.)")
        detail = " ".join([*details, *self._undecided(undecided)])
        return Tile("What failed?", figure, detail or f"All {len(asked)} controls stay within their limits.", verdict)

    def _failing(self, failed: Sequence[Reading]) -> str:
        """One control: its layers, or the datasets on which it fails; a star where also at the layer that is tested."""
        fails = _CONTROLS[failed[0]["claim"]].fails
        if not self.several:
            layers = tuple(failed[0]["failing_layers"] or ())
            return f"{fails} at {layer_names(layers)}." if layers else f"{fails}."
        tested = {
            one["dataset"]
            for one in failed
            if share_layer(self.findings, one["dataset"]) in (one["failing_layers"] or ())
        }
        names = [display_name(one["dataset"]) + "*" * (one["dataset"] in tested) for one in failed]
        return f"{fails} on {listing(names)}."

    def _undecided(self, undecided: Sequence[Reading]) -> list[str]:
        """Those that may fail, by name; where their value lies beyond the limit; and those without a number."""
        told = []
        kinds = {
            "Undecided": [one for one in undecided if one["value"] is not None],
            "Not measured": [one for one in undecided if one["value"] is None],
        }
        for words, found in kinds.items():
            names = list(dict.fromkeys(_lowered(one["topic"]) for one in found))
            if names:
                told.append(f"{words}: {listing(names)}{self._perhaps(found)}.")
        return told

    def _perhaps(self, found: Sequence[Reading]) -> str:
        beyond = sorted({layer for one in found for layer in one["doubtful_layers"] or ()})
        return f" (perhaps beyond their limit at {layer_names(tuple(beyond))})" if beyond and not self.several else ""


_YES = {"holds": "yes", "does not hold": "no", "undecided": "undecided"}
_OWN_CONTROLS = ("share_random_small", "share_permuted_zero")
"""No number of the parts gets a ✓ while one of these fails."""
_CONTROLS = {statement.claim: statement for statement in (*SHARE_CONTROLS, *CURVE_CONTROLS)}


def _lowered(topic: str) -> str:
    """Within a sentence; ΔP stays as it is."""
    return topic if topic.startswith("ΔP") else topic[:1].lower() + topic[1:]


def _share(found: Estimate | None) -> str:
    """48 % [34, 64]."""
    return estimate(found, 0, 100.0, "\u00a0%")


def _auc(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _plain(value: float) -> str:
    return number(value, 2)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
