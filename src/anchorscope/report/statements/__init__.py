"""What may be said of the curves: measures, thresholds, verdicts and sentences.

People who look at the same ΔP chart disagree about what it shows. So the report computes what it says. Every claim is
put before the numbers are seen, compares one estimate with one named threshold, and never says more than the interval
allows; thresholds and the rules from an interval to a verdict stand in `report/verdicts.py`.

- Readings, as observations.json holds them: `reading_record.py` is one of them; `number_readings.py` and
  `curve_readings.py` make them; `run_readings.py` says which are put to what, and which matter first.
- What changes from model to model: `run_curves.py`, `size_trends.py`, and in sentences `across_models.py`.
- Claims of earlier readers, put to the test. Five written readings of two of the paper's layer charts exist. They look
  at the same lines and contradict each other: the A-Anchored lines are flat, or fall to −40; the lowest line is PopQA,
  or HotpotQA, or NQ; the curves recover, stay low, or fall to the end. Each claim is one plain sentence of ours with
  its sources, those who say otherwise, and a computation (`claim_checks.py`, `claim_sizes.py`) that says whether it
  holds for the runs at hand. Opposite claims are both kept; both cannot hold. `claims.py` lists and judges them.
- The chart in words: `phrases.py`, `prose_chart.py`, `prose.py`.
"""
