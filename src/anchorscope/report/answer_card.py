"""The answer card: what a run found, whether to believe it, what to do next, in ten seconds.

One sentence, four tiles (does the probe know more than confidence and words; how much of its evidence needs the
question; do items differ; what failed), each with its number, interval and verdict, then warnings and next steps. Every
word comes from the readings of the run, so that the card cannot say more than they do. The page, the terminal, a
notebook and `anchorscope view` show the same card.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorscope.report.findings import Findings, auc_of, nested_auc
from anchorscope.report.next_steps import next_steps
from anchorscope.report.page_writer import fragment
from anchorscope.report.palette import display_name
from anchorscope.report.shares import LOWER, PROBE, UPPER, has_shares, result_of, share_at, share_layer, truth_readers
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.share_statements import needed_items
from anchorscope.report.statements.statement import Reading, estimate_in
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import MISSING, count, estimate, listing, number, short_percent, spanned
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
            return estimate_in(self.one(dataset, "adds_to_confidence"))

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
        several = len(self.findings.datasets) > 1

        def tell(dataset: str) -> str:
            share, layer = self.share(dataset), share_layer(self.findings, dataset)
            if share is None:
                return "could not be measured at the layer that is tested"
            own = f"{_share(share)}, " if several else ""
            return f"{own}random words {_share(self.share(dataset, 'random'))}, layer {layer}"

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
        needed = [needed_items(gap(dataset)) for dataset in self.findings.datasets]
        most = max((one for one in needed if one), default=None) if verdict == "undecided" else None
        more = f" About {count(most)} items would narrow it to ±10 points." if most else ""
        detail = f"{_capital(self.each(tell))}.{more}"
        return Tile("Do items differ in it?", self.figure(gap, 0, 100.0, " points"), detail, verdict)

    def controls_tile(self) -> Tile:
        """Which controls fail, or may; at which layers."""
        asked = [one for one in self.observations if one["claim"] in _CONTROLS and one["key"]]
        failed = [one for one in asked if one["verdict"] == "does not hold"]
        doubted = [one for one in asked if one["verdict"] == "undecided" and one["doubtful_layers"]]
        verdict: Verdict = "does not hold" if failed else "undecided" if doubted or not asked else "holds"
        if not asked:
            return Tile("What failed?", MISSING, "No control was measured.", verdict)
        beyond = failed or doubted
        all_of_them = f"of {len(asked)} controls"
        figure = (f"{len(failed)} {all_of_them}" if failed
                  else f"nothing surely; {len(doubted)} {all_of_them} in doubt" if doubted else "nothing")  # fmt: skip
        details = [f"{self._failing(one)}." for one in beyond]
        if failed and doubted:
            names = [f"{_name(self.findings, one)}{one['topic'].lower()}" for one in doubted]
            details.append(f"In doubt: {listing(names)}.")
        detail = " ".join(details) or f"All {len(asked)} controls stay within their limits at every layer."
        return Tile("What failed?", figure, detail, verdict)

    def _failing(self, one: Reading) -> str:
        layers = one["failing_layers"] or one["doubtful_layers"]
        where = f" at {layer_names(tuple(layers))}" if layers else ""
        return f"{_name(self.findings, one)}{_CONTROLS[one['claim']].fails}{where}"


_CONTROLS = {statement.claim: statement for statement in (*SHARE_CONTROLS, *CURVE_CONTROLS)}


def _name(findings: Findings, one: Reading) -> str:
    """Which dataset, where there are several."""
    return f"{display_name(one['dataset'])}: " if len(findings.datasets) > 1 else ""


def _share(found: Estimate | None) -> str:
    """48 % [34, 64]."""
    return estimate(found, 0, 100.0, "\u00a0%")


def _auc(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _percent(value: float) -> str:
    return f"{number(100 * value, 0)}\u00a0%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
