"""The experiments that can be asked for, by name; the knockout and its controls are always made."""

EVIDENCE = (
    "knockout", "exact-tokens", "template", "edges", "zeroing", "patching", "answer-only", "layers", "heads",
    "saliency", "boundary", "self-awareness", "agreement", "sensitivity",
)  # fmt: skip
NEEDS = {"agreement": ("patching", "answer-only", "saliency")}
"""Experiments that compare others ask for them."""
