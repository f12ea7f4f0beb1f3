"""Detectors inside other libraries of hallucination detection: one file per library, which alone imports it.

A library that asks for a score hands over a prompt and an answer; `prompts` finds the question in it. What was tested
with which version is in docs/adapters.md.
"""
