"""Finished runs in the trackers of experiments that people already have: MLflow, Weights & Biases, Trackio.

`records` says what is logged, in plain data; one file per tracker hands it over, and alone imports the library.
"""
