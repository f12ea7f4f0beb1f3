"""anchorscope inside other tools, one file each: a scorer of inspect_ai, and finished runs in experiment trackers."""
