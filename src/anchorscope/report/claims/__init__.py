"""What others saw in such charts, put to the test.

Five written readings of two of the paper's layer charts exist. They look at the same lines and contradict each other:
the A-Anchored lines are flat, or fall to −40; the lowest line is PopQA, or HotpotQA, or NQ; the curves recover, stay
low, or fall to the end. Here each claim is one plain sentence of ours with its sources, those who say otherwise, and a
computation that says whether it holds for the runs at hand. Opposite claims are both kept; both cannot hold.

- `sources.py`: the five readings.
- `claim.py`: a claim, and what the numbers say about it.
- `of_curves.py`, `of_datasets.py`, `of_sizes.py`: the computations, by what they need.
- `catalogue.py`: the list of claims.
- `judging.py`: all claims on one run or several.
- `shown.py`: as a table and as records.
"""

from anchorscope.report.claims.catalogue import CLAIMS
from anchorscope.report.claims.claim import Claim, Judged, Judgement
from anchorscope.report.claims.judging import judge
from anchorscope.report.claims.shown import claims_records, claims_table

__all__ = ["CLAIMS", "Claim", "Judged", "Judgement", "claims_records", "claims_table", "judge"]
