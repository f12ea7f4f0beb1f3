"""What the answer card says, put together from the readings of a run: its sentence and its four tiles.

One dataset is told with intervals and layers; of several, ranges and names are told, and the numbers stand below.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.report.findings import Findings, auc_of, nested_auc
from anchorscope.report.palette import display_name
from anchorscope.report.shares import LOWER, PROBE, UPPER, result_of, share_at, share_layer, truth_readers
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.share_statements import needed_items, random_thirds
from anchorscope.report.statements.statement import Reading, estimate_in
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import MISSING, as_percent, count, estimate, listing, number, short_percent, spanned
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

    def share(self, dataset: str, intervention: str = "knockout", group: str = "all") -> Estimate | None:
        """At the layer that is tested."""
        return share_at(self.findings, dataset, share_layer(self.findings, dataset), intervention, group)

    # The sentence

    def answer(self) -> str:
        """How much of the evidence needs the question; what random words take; whether items differ."""
        share, random = self.over(self.share, as_percent), self.over(lambda one: self.share(one, "random"), as_percent)
        evidence, beside = "of the probe's evidence needs the question's key words", f"(random words: {random})"
        by, caveat = self._by_verdict("share_needed"), self._no_more_than_any_words()
        if len(by) > 1:
            words = {"holds": "surely some on", "does not hold": "hardly any on", "undecided": "undecided on"}
            where = ", ".join(f"{words[verdict]} {listing(names)}" for verdict, names in by.items())
            return f"{share} {evidence} {beside}: {where}{caveat}; {self._items()}."
        told = {
            "holds": f"{share if self.several else f'About {share}'} {evidence} {beside}{caveat}, the rest does not",
            "does not hold": f"Hardly any {evidence}: {share} {beside}",
            "undecided": f"Whether any {evidence} is undecided: {share} {beside}",
        }[next(iter(by), "undecided")]
        return f"{told}; {self._items()}."

    def _no_more_than_any_words(self) -> str:
        """Where random words take as much, or may."""
        words = {"does not hold": "no more than any words take", "undecided": "perhaps no more than any words take"}
        by = self._by_verdict("share_beyond_random")
        told = [
            words[verdict] + (f" on {listing(names)}" if self.several else "")
            for verdict, names in by.items()
            if verdict in words
        ]
        return f" – {', '.join(told)} –" if told else ""

    def _by_verdict(self, claim: str) -> dict[str, list[str]]:
        """The datasets by what is said of them, best first; one that was not asked is undecided."""
        by: dict[str, list[str]] = {verdict: [] for verdict in MARKS}
        for dataset in self.findings.datasets:
            by[(self.one(dataset, claim) or {"verdict": "undecided"})["verdict"]].append(display_name(dataset))
        return {verdict: names for verdict, names in by.items() if names}

    def _items(self) -> str:
        words = {
            "holds": "items differ in it",
            "does not hold": "items do not differ in it, as far as states tell",
            "undecided": "whether items differ is undecided",
        }
        return ", ".join(
            words[verdict] + (f" on {listing(names)}" if self.several else "")
            for verdict, names in self._by_verdict("items_differ").items()
        )

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

    def share_tile(self) -> Tile:
        """The question share against what random words take."""
        several = self.several

        def tell(dataset: str) -> str:
            share, random = self.share(dataset), self.share(dataset, "random")
            if share is None:
                return "could not be measured"
            if several:
                return f"{short_percent(share)} (random {short_percent(random)})"
            return f"random words {_share(random)}, layer {share_layer(self.findings, dataset)}"

        figure = self.figure(self.share, 0, 100.0, "\u00a0%")
        return Tile(
            "How much of its evidence needs the question?",
            figure,
            f"{_capital(self.each(tell))}.",
            self.verdict("share_needed", "share_beyond_random"),
        )

    def items_tile(self) -> Tile:
        """Do held-out thirds of the items differ?"""

        def gap(dataset: str) -> Estimate | None:
            found = result_of(self.findings, dataset, "thirds_difference")
            return found.estimate if found else None

        def tell(dataset: str) -> str:
            lower, upper = (self.share(dataset, group=group) for group in (LOWER, UPPER))
            if lower is None or upper is None:
                return "not measured"
            beside = random_thirds(self.findings, dataset, share_layer(self.findings, dataset))
            random = f"random words {short_percent(beside[0])} and {short_percent(beside[1])}" if beside else ""
            if self.several:
                return f"{short_percent(lower)} and {short_percent(upper)}" + (f" ({random})" if random else "")
            told = f"{short_percent(lower)} in the lower third, {short_percent(upper)} in the upper, held out"
            return told + (f"; {random}" if random else "")

        verdict = self.verdict("items_differ")
        open_ones = {
            dataset: needed_items(gap(dataset))
            for dataset in self.findings.datasets
            if (self.one(dataset, "items_differ") or {"verdict": "undecided"})["verdict"] == "undecided"
        }
        more = "".join(
            f" About {count(items)} items{f' of {display_name(dataset)}' if self.several else ''} would "
            "narrow it to ±10 points."
            for dataset, items in open_ones.items()
            if items
        )
        opening = "Lower and upper third, held out: " if self.several else ""
        detail = f"{opening}{self.each(tell)}.{more}"
        return Tile("Do items differ in it?", self.figure(gap, 0, 100.0, " points"), detail, verdict)

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
