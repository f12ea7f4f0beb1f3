"""The chart, read by arithmetic: claims per curve, dataset and model, each with number, interval and verdict.

People who look at the same ΔP chart disagree about what it shows. So the report computes its readings. Every claim is
put before the numbers are seen, compares one estimate with one named threshold, and never says more than the interval
allows (`verdicts.py`). The list is what `observations.json` holds.

- `record.py`: one reading.
- `rules.py`: the assignment rules in words.
- `at_reference.py`, `of_probes.py`: claims about single numbers.
- `of_curves.py`: claims about a curve's way along the depth, and from where on two curves lie apart.
- `of_datasets.py`: claims about a model over several datasets.
- `index.py`: which claims are put to what, and which matter first.
"""

from anchorscope.report.readings.index import read
from anchorscope.report.readings.record import About, Reading
from anchorscope.report.readings.rules import RULES, rules_of

__all__ = ["RULES", "About", "Reading", "read", "rules_of"]
