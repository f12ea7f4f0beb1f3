"""Figures, readings in words, and the page. Nothing here needs a model: a finished run's tables are enough."""
