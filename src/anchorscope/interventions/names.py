"""The experiments that can be asked for, by name; the knockout and its controls are always made."""

EVIDENCE = ("knockout", "exact-tokens")
