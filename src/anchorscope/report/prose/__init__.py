"""The chart in words, generated from the readings by templates: it never says more than the verdicts allow.

- `section.py`: titled sections of paragraphs and lists, as plain text.
- `phrases.py`: each claim in three sentences, one per verdict.
- `components.py`: what is drawn. `series.py`: curve by curve. `observations.py`: what matters first.
- `interpretation.py`: what it means together, and what it does not show.
"""

from collections.abc import Sequence

from anchorscope.report.findings import Findings
from anchorscope.report.prose.components import components, overview
from anchorscope.report.prose.interpretation import interpretation
from anchorscope.report.prose.observations import key_observations
from anchorscope.report.prose.phrases import Told
from anchorscope.report.prose.section import Point, Points, Prose, Section
from anchorscope.report.prose.series import series
from anchorscope.report.readings.record import Reading

__all__ = ["Point", "Points", "Prose", "Section", "words"]


def words(findings: Findings, observations: Sequence[Reading]) -> Prose:
    """Overview, components, curve by curve, key observations, interpretation."""
    told = Told(observations)
    return Prose((
        overview(findings),
        components(findings),
        series(findings, told),
        key_observations(findings, told),
        interpretation(findings, told),
    ))  # fmt: skip
