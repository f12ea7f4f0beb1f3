"""The question share described: where along the depth it rises, is highest and falls; by truth; beside its nulls."""

from anchorscope.report.shares import PROBE, result_of, share_at, truth_readers
from anchorscope.report.statements.layer_band import LayerBand, share_band
from anchorscope.report.statements.reading_record import About, Reading, at_layers
from anchorscope.report.verdicts import NEGLIGIBLE_SHARE, Verdict, above, between, difference
from anchorscope.report.wording import estimate, listing, number
from anchorscope.stats.estimate import Estimate


def shape_readings(about: About) -> list[Reading]:
    """Where the share is highest, and where it rises and falls along the depth."""
    band = share_band(about.findings, about.dataset or "", "knockout")
    tenth = number(100 * NEGLIGIBLE_SHARE, 0)
    told = (
        ("share_peak", "the share is highest in the interior of the model, not at its first or last layer",
         _peak(about, band)),
        ("share_rises", f"from the first layer on the share rises by more than {tenth} points",
         _change(band, "rise", band.rise if band else None)),
        ("share_falls", f"towards the last layer the share falls by more than {tenth} points",
         _change(band, "fall", band.fall if band else None)),
    )  # fmt: skip
    return [about.reading(claim, words, numbers, found, verdict, layer=layer, unit=unit, scope="curve")
            for claim, words, (numbers, found, verdict, layer, unit) in told]  # fmt: skip


_Shape = tuple[str, Estimate | None, Verdict, int | None, str]


def _peak(about: About, band: LayerBand | None) -> _Shape:
    if band is None:
        return "", None, "undecided", None, "layer"
    where, last = band.peak_layer, about.findings.n_layers - 1
    verdict: Verdict = "undecided"
    if where.ci_low > 0 and where.ci_high < last:
        verdict = "holds"
    elif where.ci_high == 0 or where.ci_low == last:
        verdict = "does not hold"
    numbers = f"Λ {estimate(band.peak)}, highest at {at_layers(where)}; half of it from {at_layers(band.half_way)} on"
    return numbers, where, verdict, int(where.value), "layer"


def _change(band: LayerBand | None, name: str, found: Estimate | None) -> _Shape:
    if band is None or found is None:
        return "", None, "undecided", None, "share of the evidence"
    end = band.estimate(0 if name == "rise" else -1)
    layer = band.layers[0 if name == "rise" else -1]
    numbers = f"by {estimate(found)}; at layer {layer} {estimate(end)}"
    return numbers, found, above(found, NEGLIGIBLE_SHARE), layer, "share of the evidence"


def description_readings(about: About) -> list[Reading]:
    """What else is said of the share at its layer: by truth, and what weaker readers of truth reach."""
    findings, dataset = about.findings, about.dataset or ""
    gap = result_of(findings, dataset, "true_minus_false")
    found = gap.estimate if gap else None
    wide = f"±{number(100 * NEGLIGIBLE_SHARE, 0)} points"
    same = between(found, -NEGLIGIBLE_SHARE, NEGLIGIBLE_SHARE)
    shares = [share_at(findings, dataset, gap.layer, truth=truth) if gap else None for truth in ("true", "false")]
    numbers = f"Λ {estimate(shares[0])} of true, {estimate(shares[1])} of false; difference {estimate(found)}"
    made = [about.reading("share_same_by_truth", f"true and false answers have the same share, within {wide}", numbers,
                          found, same, layer=gap.layer if gap else None, unit="share of the evidence")]  # fmt: skip
    return [*made, *_ladder(about)]


def _ladder(about: About) -> list[Reading]:
    """Does the probe read truth better than every probe that sees less?"""
    findings, dataset = about.findings, about.dataset or ""
    readers = truth_readers(findings, dataset)
    probe = readers.pop(PROBE, None)
    if probe is None or not readers:
        return []
    best = max(readers, key=lambda name: readers[name].value)
    gain = difference(probe, readers[best])
    numbers = f"AUC {estimate(probe)}; best of the others, {best}: {estimate(readers[best])}"
    words = f"the probe reads truth better than {listing(list(readers))}"
    return [about.reading("auc_above_nulls", words, numbers, gain, above(gain, 0.0), unit="AUC")]
