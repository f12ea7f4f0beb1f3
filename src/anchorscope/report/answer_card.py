"""The answer card: what a run found, whether to believe it, what to do next, in ten seconds.

One sentence, four tiles (does the probe know more than confidence and words; how much of its evidence needs the
question; do items differ; what failed), each with its number, interval and verdict, then warnings and next steps. Every
word comes from the readings of the run, so that the card cannot say more than they do. The page, the terminal, a
notebook and `anchorscope view` show the same card.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorscope.report.findings import Findings, auc_of, nested_auc
from anchorscope.report.next_steps import next_steps
from anchorscope.report.page_writer import fragment
from anchorscope.report.palette import display_name
from anchorscope.report.shares import LOWER, PROBE, UPPER, has_shares, result_of, share_at, share_layer, truth_readers
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.reading_record import Reading
from anchorscope.report.statements.share_controls import SHARE_CONTROLS
from anchorscope.report.statements.share_tests import needed_items
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import MISSING, estimate, listing, number, short_percent, spanned
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
class AnswerCard:
    """What a run says first."""

    model: str
    """Whose answers."""
    sentence: str
    """The answer."""
    tiles: tuple[Tile, ...]
    """How sure."""
    warnings: tuple[str, ...]
    """What to know before believing it."""
    next_steps: tuple[str, ...]
    """What to do now."""

    def record(self) -> dict[str, Any]:
        """As answer.json holds it."""
        return asdict(self)


def card_from_record(found: dict[str, Any]) -> AnswerCard:
    """The card that answer.json holds."""
    tiles = tuple(Tile(**one) for one in found["tiles"])
    told = {name: tuple(found[name]) for name in ("warnings", "next_steps")}
    return AnswerCard(found["model"], found["sentence"], tiles, **told)


def card_html(card: AnswerCard) -> str:
    """The card as a piece of HTML with its own style."""
    return fragment("card", {"card": card})


NOT_MEASURED = "This run did not measure the question share. The same command, run again into its folder, adds it."
NOISE = "Random weights: this model was never trained, and every number here is noise."


def answer_card(findings: Findings, observations: Sequence[Reading]) -> AnswerCard:
    """The card of a run."""
    said = _Said(findings, observations)
    sentence = said.answer() if has_shares(findings) else NOT_MEASURED
    tiles = (said.probe_tile(), said.share_tile(), said.items_tile(), said.controls_tile())
    warnings = tuple(dict.fromkeys([*([NOISE] if findings.random_weights else []), *findings.warnings]))
    if findings.random_weights:
        sentence = NOISE
    return AnswerCard(findings.model, sentence, tiles, warnings, next_steps(findings, observations))


@dataclass(frozen=True)
class _Said:
    """The readings of a run, told over all its datasets."""

    findings: Findings
    observations: Sequence[Reading]

    def one(self, dataset: str, claim: str) -> Reading | None:
        """The reading of one dataset, whatever rule sorts."""
        wanted = (dataset, None, claim)
        return next((o for o in self.observations if (o["dataset"], o["assignment"], o["claim"]) == wanted), None)

    def verdict(self, *claims: str) -> Verdict:
        """On all datasets and all of these claims together; a claim that was not put to a dataset is left out."""
        found = [self.one(dataset, claim) for dataset in self.findings.datasets for claim in claims]
        return all_of([one["verdict"] for one in found if one is not None])

    def over(self, measure: Callable[[str], Estimate | None], show: Callable[[float], str]) -> str:
        """The smallest to the largest over the datasets."""
        found = [measure(dataset) for dataset in self.findings.datasets]
        return spanned((one.value for one in found if one is not None), show) or MISSING

    def figure(self, measure: Callable[[str], Estimate | None], digits: int, scale: float, unit: str) -> str:
        """With its interval where there is one dataset, as a range where there are several."""
        if len(self.findings.datasets) == 1:
            return estimate(measure(self.findings.datasets[0]), digits, scale, unit)
        return self.over(measure, lambda value: number(value * scale, digits) + unit)

    def each(self, tell: Callable[[str], str]) -> str:
        """A phrase per dataset, named where there are several."""
        if len(self.findings.datasets) == 1:
            return tell(self.findings.datasets[0])
        return "; ".join(f"{display_name(dataset)} {tell(dataset)}" for dataset in self.findings.datasets)

    def share(self, dataset: str, intervention: str = "knockout", group: str = "all") -> Estimate | None:
        """At the layer that is tested."""
        return share_at(self.findings, dataset, share_layer(self.findings, dataset), intervention, group)

    # The sentence

    def answer(self) -> str:
        """How much of the evidence needs the question; what random words take; whether items differ."""
        share, random = self.over(self.share, _percent), self.over(lambda one: self.share(one, "random"), _percent)
        needed, beyond = self.verdict("share_needed"), self.verdict("share_beyond_random")
        several = len(self.findings.datasets) > 1
        about = share if several else f"About {share}"
        told = {
            "holds": f"{about} of the probe's evidence needs the question's key words (random words: {random})",
            "does not hold": f"Hardly any of the probe's evidence needs the question's key words: {share} "
            f"(random words: {random})",
            "undecided": "Whether the probe's evidence needs the question's key words is undecided"
            + (" on some datasets" if several else "") + f": {share} (random words: {random})",
        }[needed]  # fmt: skip
        if needed == "holds" and beyond != "holds":
            told += f", {'perhaps ' if beyond == 'undecided' else ''}no more than any words take"
        return f"{told}; {self._items()}."

    def _items(self) -> str:
        by = {verdict: [] for verdict in MARKS}  # type: dict[str, list[str]]
        for dataset in self.findings.datasets:
            by[(self.one(dataset, "items_differ") or {"verdict": "undecided"})["verdict"]].append(display_name(dataset))
        several = len(self.findings.datasets) > 1
        words = {"holds": "items differ in it", "does not hold": "items do not differ in it",
                 "undecided": "whether items differ is undecided at this n"}  # fmt: skip
        return ", ".join(words[verdict] + (f" on {listing(names)}" if several else "")
                         for verdict, names in by.items() if names)  # fmt: skip

    # The tiles

    def probe_tile(self) -> Tile:
        """Does the probe add to the model's own confidence, and read truth better than words do?"""
        findings = self.findings

        def gain(dataset: str) -> Estimate | None:
            return _found(self.one(dataset, "adds_to_confidence"))

        def tell(dataset: str) -> str:
            both, alone = nested_auc(findings, dataset, kind="nested+confidence"), auc_of(
                findings, dataset, "confidence-mean", None)  # fmt: skip
            parts = [f"AUC {_auc(nested_auc(findings, dataset))}, confidence {_auc(alone)}, both {_auc(both)}"]
            others = {name: one for name, one in truth_readers(findings, dataset).items() if name != PROBE}
            if others:
                best = max(others, key=lambda name: others[name].value)
                parts.append(f"{best} {_auc(others[best])}")
            return ", ".join(parts)

        yes = {"holds": "yes", "does not hold": "no", "undecided": "undecided"}
        told = f"Over confidence alone: {yes[self.verdict('adds_to_confidence')]}."
        if any(one["claim"] == "auc_above_nulls" for one in self.observations):
            told += f" Over words and base rates: {yes[self.verdict('auc_above_nulls')]}."
        figure = self.figure(gain, 2, 1.0, "")
        figure = figure if figure == MISSING or figure.startswith("−") else f"+{figure}"
        return Tile("Does the probe know more than confidence and words?", f"{figure} AUC",
                    f"{told} {self.each(tell)}.",
                    self.verdict("adds_to_confidence", "auc_above_nulls"))  # fmt: skip

    def share_tile(self) -> Tile:
        """The question share against what random words take."""
        def tell(dataset: str) -> str:
            random = estimate(self.share(dataset, "random"), 0, 100.0, "\u00a0%")
            return f"random words {random}, layer {share_layer(self.findings, dataset)}"

        figure = self.figure(self.share, 0, 100.0, "\u00a0%")
        return Tile("How much of its evidence needs the question?", figure, f"{_capital(self.each(tell))}.",
                    self.verdict("share_needed", "share_beyond_random"))  # fmt: skip

    def items_tile(self) -> Tile:
        """Do held-out thirds of the items differ?"""
        def gap(dataset: str) -> Estimate | None:
            found = result_of(self.findings, dataset, "thirds_difference")
            return found.estimate if found else None

        def tell(dataset: str) -> str:
            thirds = [short_percent(self.share(dataset, group=group)) for group in (LOWER, UPPER)]
            return f"{thirds[0]} in the lower third, {thirds[1]} in the upper, held out"

        verdict = self.verdict("items_differ")
        needed = needed_items(gap(self.findings.datasets[0])) if len(self.findings.datasets) == 1 else ""
        more = needed.removeprefix(", ").replace("would give", "items would give") if verdict == "undecided" else ""
        detail = f"{_capital(self.each(tell))}." + (f" {_capital(more)}." if more else "")
        return Tile("Do items differ in it?", self.figure(gap, 0, 100.0, " points"), detail, verdict)

    def controls_tile(self) -> Tile:
        """Which controls fail, or may; at which layers."""
        asked = [one for one in self.observations if one["claim"] in SHARE_CONTROLS and one["dataset"] is not None]
        failed = [one for one in asked if one["verdict"] == "does not hold"]
        doubted = [one for one in asked if one["verdict"] == "undecided" and one["doubtful_layers"]]
        verdict: Verdict = "does not hold" if failed else "undecided" if doubted or not asked else "holds"
        if not asked:
            return Tile("What failed?", MISSING, "No control was measured.", verdict)
        beyond = failed or doubted
        figure = (f"{len(failed)} of {len(asked)} controls" if failed
                  else f"none surely; {len(doubted)} of {len(asked)} in doubt" if doubted else f"none of {len(asked)}")
        details = [self._failing(one) for one in beyond]
        detail = f"{'; '.join(details)}." if details else "Every control stays within its limit at every layer."
        return Tile("What failed?", figure, detail, verdict)

    def _failing(self, one: Reading) -> str:
        layers = one["failing_layers"] or one["doubtful_layers"]
        where = f" at {layer_names(tuple(layers))}" if layers else ""
        name = f"{display_name(one['dataset'])}: " if len(self.findings.datasets) > 1 else ""
        return f"{name}{CONTROL_FAILS[one['claim']]}{where}"


CONTROL_FAILS = {
    "share_random_small": "Random words take more than a quarter of the share",
    "share_random_mass_small": "Random words of equal attention take more than a quarter",
    "share_floor_small": "Nothing cut loses more than a tenth",
    "share_permuted_zero": "Permuted labels give a share",
    "share_random_weights": "Random weights have more than a quarter of the share",
}
"""What has gone wrong where a control fails."""


def _found(reading: Reading | None) -> Estimate | None:
    if reading is None or reading["value"] is None:
        return None
    low, high = (math.nan if reading[end] is None else reading[end] for end in ("ci_low", "ci_high"))
    return Estimate(reading["value"], low, high, reading["n"], reading["method"])


def _auc(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _percent(value: float) -> str:
    return f"{number(100 * value, 0)}\u00a0%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
