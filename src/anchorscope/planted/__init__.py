"""A model whose pathways are known: a made-up language, items whose truth has a planted source, and a trained model."""

from pathlib import Path


def planted_model_folder() -> Path:
    """The folder of the planted model and its tokenizer, to be loaded like any other; it comes with the package."""
    return Path(__file__).parent / "planted-model"
