"""Hallucination detectors: what they read, how they are fitted, compared, saved and used."""
