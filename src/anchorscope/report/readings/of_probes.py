"""Readings of the probe itself: is it better than simple baselines, and does a signal survive the cut?"""

from anchorscope.report.charts.probe_auc import BASELINES
from anchorscope.report.lookup import auc_of, headline_layer
from anchorscope.report.readings.record import About, Reading
from anchorscope.report.verdicts import above, difference
from anchorscope.report.wording import estimate

NO_SIGNAL_AUC = 0.5
"""Guessing."""


def beats_baselines(about: About) -> Reading:
    """Does the probe beat the best of the baselines?"""
    findings, dataset = about.findings, about.dataset or ""
    layer = headline_layer(findings, dataset)
    probe = None if layer is None else auc_of(findings, dataset, "transfer", layer)
    found = {kind: auc_of(findings, dataset, kind, None) for kind in BASELINES}
    known = {kind: value for kind, value in found.items() if value is not None}
    best = max(known, key=lambda kind: known[kind].value, default=None)
    gain = difference(probe, known[best] if best else None)
    words = "the probe tells true from false better than every baseline"
    numbers = (
        f"AUC {estimate(probe)} at layer {layer}; best baseline, {BASELINES[best]}: {estimate(known[best])}"
        if best
        else ""
    )
    return about.reading("beats_baselines", words, numbers, gain, above(gain, 0.0), unit="AUC", layer=layer)


def signal_survives(about: About) -> Reading:
    """Can a probe trained on the cut states still tell?"""
    findings, dataset = about.findings, about.dataset or ""
    layer = headline_layer(findings, dataset)
    refit = None if layer is None else auc_of(findings, dataset, "refit", layer, intervention="knockout")
    words = "with the question's key words cut, a probe trained anew still tells true from false"
    numbers = f"AUC {estimate(refit)} at layer {layer}, 0.5 is guessing"
    verdict = above(refit, NO_SIGNAL_AUC)
    return about.reading("signal_survives", words, numbers, refit, verdict, unit="AUC", layer=layer)
