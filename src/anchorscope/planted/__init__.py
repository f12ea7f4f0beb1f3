"""A model whose pathways are known: a made-up language, items whose truth has a planted source, trained weights."""
