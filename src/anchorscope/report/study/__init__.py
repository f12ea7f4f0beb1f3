"""The page of a study: all its runs compared, what failed, and a way to every run's own page."""
