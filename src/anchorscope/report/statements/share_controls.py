"""What the controls of the question share say, at every layer: where one fails, the share there says nothing.

A random cut must take less than a quarter of what the knockout takes, wherever that takes something; cutting nothing
must take next to nothing, and permuted labels nothing at all. All are asked of bands that hold for all layers at once,
so that thirty layers are not thirty chances to fail. A control that surely fails at one layer has failed, and the
layers are named.
"""

import math

from anchorscope.report.shares import share_at, share_layer, share_rows
from anchorscope.report.statements.layer_band import LayerBand, layer_names, share_band
from anchorscope.report.statements.reading_record import About, Reading
from anchorscope.report.verdicts import NEGLIGIBLE_SHARE, SMALL_RATIO, Verdict, below, size_ratio
from anchorscope.report.wording import estimate, number
from anchorscope.stats.estimate import Estimate

SHARE_CONTROLS = (
    "share_random_small", "share_random_mass_small", "share_floor_small", "share_permuted_zero", "share_random_weights",
)  # fmt: skip
"""What is claimed here, in the order in which it is told."""
_RANDOM_CUTS = {"random": "random words", "random-mass": "random words of equal attention"}


def control_readings(about: About) -> list[Reading]:
    """What every control does at every layer of one dataset."""
    findings, dataset = about.findings, about.dataset or ""
    knockout = share_band(findings, dataset, "knockout")
    made = [_small_ratio(about, knockout, control, words) for control, words in _RANDOM_CUTS.items()
            if control == "random" or share_rows(findings, dataset, control).height]  # fmt: skip
    return [*made, _floor(about), _permuted(about), *_random_weights(about)]


def _small_ratio(about: About, knockout: LayerBand | None, control: str, words: str) -> Reading:
    """Does a random cut take less than a quarter of what the knockout takes, wherever that takes anything?"""
    claim = f"share_{control.replace('-', '_')}_small"
    said = (
        f"cutting {words} takes less than {SMALL_RATIO:.0%} of the knockout's share at every layer where that surely "
        f"is more than {number(NEGLIGIBLE_SHARE, 1)}"
    )
    random = share_band(about.findings, about.dataset or "", control)
    needed = knockout.surely_above(NEGLIGIBLE_SHARE) if knockout else ()
    asked = tuple(layer for layer in needed if random and layer in random.layers)
    if not (knockout and random and asked):
        return _control(about, claim, said.replace("%", " %"), "", None, "undecided")
    mine, theirs = knockout.at(asked), random.at(asked)
    ratios = [size_ratio(theirs.estimate(place), mine.estimate(place)) for place in range(len(asked))]
    known = [(layer, ratio) for layer, ratio in zip(asked, ratios, strict=True) if ratio is not None]
    worst = max(known, key=lambda pair: pair[1].value)
    over = tuple(layer for layer, ratio in known if ratio.value >= SMALL_RATIO)
    beyond = {layer: _beyond(theirs.estimate(place), mine.estimate(place)) for place, layer in enumerate(asked)}
    sure = tuple(layer for layer, found in beyond.items() if found.ci_low > 0)
    verdict: Verdict = "does not hold" if sure else "undecided"
    unsure = tuple(layer for layer, found in beyond.items() if found.ci_low <= 0 <= found.ci_high)
    verdict = "holds" if not (sure or unsure) else verdict
    numbers = f"highest ratio {estimate(worst[1])} at layer {worst[0]}{_where(over, sure, unsure)}"
    return _control(about, claim, said.replace("%", " %"), numbers, worst[1], verdict, worst[0], "ratio", sure,
                    tuple(layer for layer in over if layer not in sure))  # fmt: skip


def _beyond(random: Estimate, knockout: Estimate) -> Estimate:
    """By how much a random cut takes more than its quarter.

    The ends are combined as if the two were independent. They rest on the same items and rise and fall together, so
    that their difference is surer than that.
    """
    value = random.value - SMALL_RATIO * knockout.value
    under = math.hypot(random.value - random.ci_low, SMALL_RATIO * (knockout.ci_high - knockout.value))
    over = math.hypot(random.ci_high - random.value, SMALL_RATIO * (knockout.value - knockout.ci_low))
    return Estimate(value, value - under, value + over, min(random.n, knockout.n), "ends combined as independent")


def _floor(about: About) -> Reading:
    """Does estimation alone lose next to nothing?"""
    said = f"with nothing cut the share stays below {number(NEGLIGIBLE_SHARE, 1)} at every layer"
    band = share_band(about.findings, about.dataset or "", "none")
    if band is None:
        return _control(about, "share_floor_small", said, "", None, "undecided")
    place = int(band.value.argmax())
    over = tuple(layer for layer, value in zip(band.layers, band.value, strict=True) if value >= NEGLIGIBLE_SHARE)
    sure, under = band.surely_above(NEGLIGIBLE_SHARE), band.surely_below(NEGLIGIBLE_SHARE)
    unsure = tuple(layer for layer in band.layers if layer not in (*sure, *under))
    verdict: Verdict = "does not hold" if sure else "undecided" if unsure else "holds"
    numbers = f"highest {estimate(band.estimate(place))} at layer {band.layers[place]}{_where(over, sure, unsure)}"
    return _control(about, "share_floor_small", said, numbers, band.estimate(place), verdict, band.layers[place],
                    failing=sure, doubtful=tuple(layer for layer in over if layer not in sure))  # fmt: skip


def _permuted(about: About) -> Reading:
    """Do permuted labels give no share at any layer? A band that leaves out zero refutes it."""
    said = "with the labels permuted within relations the share's band covers zero at every layer"
    band = share_band(about.findings, about.dataset or "", "permuted")
    if band is None:
        return _control(about, "share_permuted_zero", said, "", None, "undecided")
    place = int(abs(band.value).argmax())
    off = (*band.surely_below(0.0), *band.surely_above(0.0))
    numbers = f"farthest {estimate(band.estimate(place))} at layer {band.layers[place]}"
    numbers += f"; surely off zero at {layer_names(off)}" if off else ""
    verdict: Verdict = "does not hold" if off else "holds"
    return _control(about, "share_permuted_zero", said, numbers, band.estimate(place), verdict, band.layers[place],
                    failing=off, doubtful=())  # fmt: skip


def _random_weights(about: About) -> list[Reading]:
    """The same items through random weights, where that was run: what they give is in the words alone."""
    findings, dataset = about.findings, about.dataset or ""
    layer = share_layer(findings, dataset)
    null = share_at(findings, dataset, layer, "random-weights")
    if null is None:
        return []
    ratio = size_ratio(null, share_at(findings, dataset, layer))
    said = f"random weights of the same shape have less than {SMALL_RATIO:.0%} of the share".replace("%", " %")
    numbers = f"Λ {estimate(null)} at layer {layer}, ratio {estimate(ratio)}"
    return [_control(about, "share_random_weights", said, numbers, ratio, below(ratio, SMALL_RATIO), layer, "ratio")]


def _where(over: tuple[int, ...], sure: tuple[int, ...], unsure: tuple[int, ...]) -> str:
    """At which layers a control lies above its limit, where that is sure, and where it cannot be told."""
    told = {"above": over, "surely above": sure, "undecided": unsure}
    return "".join(f"; {word} at {layer_names(layers)}" for word, layers in told.items() if layers)


def _control(
    about: About, claim: str, words: str, numbers: str, found: Estimate | None, verdict: Verdict,
    layer: int | None = None, unit: str = "share of the evidence", failing: tuple[int, ...] | None = None,
    doubtful: tuple[int, ...] | None = None,
) -> Reading:  # fmt: skip
    return about.reading(claim, words, numbers, found, verdict, layer=layer, unit=unit, standing="control",
                         failing=failing, doubtful=doubtful)  # fmt: skip
