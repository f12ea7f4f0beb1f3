"""Calibration: the whole evidence on a model whose pathways are known, and how well each experiment finds them."""
