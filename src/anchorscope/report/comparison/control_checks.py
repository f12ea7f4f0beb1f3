"""The controls that fail in some run, or may: what the page's lead names, and the table right under the chart.

A chart of several models hides a failed control easily. So every control is asked at every layer, as in the runs' own
reports, and whether the layer that is tested is among those that fail is said too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.palette import display_name
from anchorscope.report.shares import has_shares, share_layer
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.statement import Reading
from anchorscope.report.verdicts import NOOP_FLIPS, SMALL_RATIO
from anchorscope.report.wording import Table, listing

_FAILS = {one.claim: one.fails for one in (*SHARE_CONTROLS, *CURVE_CONTROLS)}
_LIMITS = {"share_random_weights": SMALL_RATIO, "noop": NOOP_FLIPS}
"""Of controls that are asked at one place only; the others name the layers beyond theirs."""


@dataclass(frozen=True)
class FailedControl:
    """A control that surely fails, or whose value lies beyond its limit and the interval does not."""

    run: str
    dataset: str
    words: str
    """What has gone wrong."""
    sure: bool
    layers: tuple[int, ...]
    """Where; empty for a control that is asked at one place only."""
    tested: int | None
    """The layer at which the share is tested."""

    @property
    def at_tested(self) -> bool:
        """Whether it goes wrong where the share is tested."""
        return not self.layers or self.tested in self.layers

    @property
    def where(self) -> str:
        """The dataset and its layers in words."""
        if not self.layers:
            return f"{self.dataset}: the tested layer"
        return f"{self.dataset}: {layer_names(self.layers)}{f', tested {self.tested} too' if self.at_tested else ''}"


def failed_controls(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> list[FailedControl]:
    """All of them, those that surely fail first; models with random weights are no evidence, and are left out."""
    found = []
    for run in compared.runs:
        for one in readings[run.model] if not run.random_weights else ():
            failed = one["verdict"] == "does not hold"
            layers = one["failing_layers"] if failed else one["doubtful_layers"]
            beyond = layers or (one["value"] or 0.0) >= _LIMITS.get(one["claim"], math.inf)
            if one["standing"] != "control" or not one["key"] or one["dataset"] is None or not (failed or beyond):
                continue
            words = _FAILS[one["claim"]] + (f" ({RULES[one['assignment']]})" if one["assignment"] else "")
            found.append(
                FailedControl(
                    run.model,
                    display_name(one["dataset"]),
                    words,
                    failed,
                    tuple(layers or ()),
                    share_layer(run, one["dataset"]),
                )
            )
    return sorted(found, key=lambda one: (not one.sure, not one.at_tested))


def controls_sentence(compared: Compared, failed: Sequence[FailedControl]) -> str:
    """What the lead says of them."""
    lacking = [run.model for run in compared.runs if not (run.random_weights or has_shares(run))]
    unknown = f" The parts' own controls were not measured in {listing(lacking)}." if lacking else ""
    sure = [one for one in failed if one.sure]
    doubtful = len(failed) - len(sure)
    are_in_doubt = f"{'is' if doubtful == 1 else 'are'} in doubt"
    if not sure:
        doubt = f"No control surely fails; {doubtful} {are_in_doubt}."
        return (doubt if doubtful else "Every control stays within its limit.") + unknown
    (_, first), *_ = _by(sure, lambda one: one.words)  # the table has the others
    more = len(sure) - len(first)
    opening = "A control fails" if len(sure) == 1 else f"{len(sure)} controls fail"
    doubt = f" {doubtful} more {are_in_doubt}." if doubtful else ""
    tail = f"; {more} more below" if more else ""
    return f"{opening}: {_phrase(first, several=len(compared.runs) > 1)}{tail}.{doubt}{unknown}"


def _phrase(failed: Sequence[FailedControl], several: bool) -> str:
    """One kind of failure: where it reaches the tested layer, and where only others."""
    words, parts = failed[0].words, []
    for tested, opening in ((True, "at the tested layer"), (False, "at other layers")):
        runs = _by([one for one in failed if one.at_tested == tested], lambda one: one.run)
        told = []
        for run, mine in runs:
            place = listing([one.where if len(failed) == 1 else one.dataset for one in mine])
            told.append(f"{run} ({place})" if several else place)
        parts += [f"{opening} {'in' if several else 'on'} {listing(told)}"] if told else []
    return f"{words[:1].lower()}{words[1:]} {', and '.join(parts)}"


def _by(failed: Sequence[FailedControl], key: Callable[[FailedControl], str]) -> list[tuple[str, list[FailedControl]]]:
    """Those with the same key together, in order."""
    return [(name, [one for one in failed if key(one) == name]) for name in dict.fromkeys(map(key, failed))]


def controls_table(failed: Sequence[FailedControl]) -> Table:
    """Run by run: what fails, on which datasets, at which layers."""
    signs = {True: "✗ fails", False: "? in doubt"}
    rows = tuple(
        (signs[sure], run, words, "; ".join(one.where for one in same))
        for sure in signs
        for run, mine in _by([one for one in failed if one.sure == sure], lambda one: one.run)
        for words, same in _by(mine, lambda one: one.words)
    )
    return Table(("", "run", "what goes wrong", "where"), rows, 4)
