"""Detectors inside other libraries of hallucination detection, one file each; tested versions: docs/adapters.md."""
