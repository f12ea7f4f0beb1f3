"""The controls that fail in some run, or may: what the page's lead names, and the table right under the chart.

A chart of several models hides a failed control easily. So every control is asked at every layer, as in the runs' own
reports, and whether the layer that is tested is among those that fail is said too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.palette import display_name
from anchorscope.report.shares import has_shares, share_layer
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.statement import Reading
from anchorscope.report.verdicts import NOOP_FLIPS, SMALL_RATIO
from anchorscope.report.wording import NOTHING, Table, listing

_FAILS = {one.claim: one.fails for one in (*SHARE_CONTROLS, *CURVE_CONTROLS)}
_LIMITS = {"share_random_weights": SMALL_RATIO, "noop": NOOP_FLIPS}
"""Of controls that are asked at one place only; the others name the layers beyond theirs."""
_MOST_NAMED = 3  # in the lead; the table has all of them


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
    numbers: str

    @property
    def at_tested(self) -> bool:
        """Whether it goes wrong where the share is tested."""
        return not self.layers or self.tested in self.layers

    @property
    def where(self) -> str:
        """The layers in words."""
        if not self.layers:
            return "at the reference layer"
        tested = f" (the tested layer {self.tested} {'too' if self.at_tested else 'passes'})"
        return f"at {layer_names(self.layers)}" + (tested if self.tested is not None else "")


def failed_controls(compared: Compared, readings: Mapping[str, Sequence[Reading]]) -> list[FailedControl]:
    """All of them, those that surely fail first; models with random weights are no evidence, and are left out."""
    found = []
    for run in compared.runs:
        for one in readings[run.model] if not run.random_weights else ():
            failed = one["verdict"] == "does not hold"
            layers = one["failing_layers"] if failed else one["doubtful_layers"]
            beyond = layers or (one["value"] or 0.0) >= _LIMITS.get(one["claim"], math.inf)
            if one["standing"] != "control" or one["dataset"] is None or not (failed or beyond):
                continue
            words = _FAILS[one["claim"]] + (f" ({RULES[one['assignment']]})" if one["assignment"] else "")
            found.append(FailedControl(run.model, display_name(one["dataset"]), words, failed, tuple(layers or ()),
                                       share_layer(run, one["dataset"]), one["numbers"].partition(";")[0]))  # fmt: skip
    return sorted(found, key=lambda one: (not one.sure, not one.at_tested))


def controls_sentence(compared: Compared, failed: Sequence[FailedControl]) -> str:
    """What the lead says of them."""
    lacking = [run.model for run in compared.runs if not (run.random_weights or has_shares(run))]
    unknown = f" The question share's own controls were not measured in {listing(lacking)}." if lacking else ""
    sure = [one for one in failed if one.sure]
    doubtful = len(failed) - len(sure)
    are_in_doubt = f"{'is' if doubtful == 1 else 'are'} in doubt"
    if not sure:
        doubt = f"No control surely fails; {doubtful} {are_in_doubt}."
        return (doubt if doubtful else "Every control stays within its limit.") + unknown
    named = [f"{one.words[:1].lower()}{one.words[1:]} in {one.run} on {one.dataset} {one.where}"
             for one in sure[:_MOST_NAMED]]  # fmt: skip
    tail = f"; {len(sure) - len(named)} more below" if len(sure) > len(named) else ""
    opening = "A control fails" if len(sure) == 1 else f"{len(sure)} controls fail"
    doubt = f" {doubtful} more {are_in_doubt}." if doubtful else ""
    return f"{opening}: {'; '.join(named)}{tail}.{doubt}{unknown}"


def controls_table(failed: Sequence[FailedControl]) -> Table:
    """Run by run: what fails, at which layers, and by how much."""
    rows = tuple(
        ("✗ fails" if one.sure else "? in doubt", one.run, one.dataset, one.words,
         layer_names(one.layers) if one.layers else "reference layer",
         NOTHING if one.tested is None else f"{one.tested}{' too' if one.at_tested else ': passes'}", one.numbers)
        for one in failed
    )  # fmt: skip
    head = ("", "run", "dataset", "what goes wrong", "where", "tested layer", "numbers")
    return Table(head, rows, len(head))
