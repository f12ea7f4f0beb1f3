"""What changes from model to model.

- `run_curves.py`: the curves of one run with all draws; `lineup.py`: several runs in order of size.
- `measures.py`: numbers of curves that claims need.
- `trends.py`: what is followed from run to run; `reading.py`: the same in sentences with verdicts.
"""
