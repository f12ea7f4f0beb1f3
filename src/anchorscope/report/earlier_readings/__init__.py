"""What five earlier written readings of such charts claimed, judged on the runs at hand; only where that is asked for.

The readings look at two of the paper's layer charts and contradict each other: the A-Anchored lines are flat, or fall
to −40; the lowest line is PopQA, or HotpotQA, or NQ; the curves recover, stay low, or fall to the end. Each claim is
one plain sentence of ours with its sources, those who say otherwise, and a condition on the curves. Opposite claims
are both kept; both cannot hold. docs/earlier-readings.md lists them.
"""
