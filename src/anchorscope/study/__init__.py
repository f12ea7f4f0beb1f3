"""`anchorscope study`: models × prompts × seeds, each on all its datasets, as one job that can be resumed."""
