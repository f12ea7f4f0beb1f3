"""The steps of a run: what each is made from, and how it is made."""
