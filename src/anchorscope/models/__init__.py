"""How to load a language model and where its parts are: one small table per family."""
