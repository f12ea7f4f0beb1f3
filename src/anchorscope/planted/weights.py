"""Where the trained weights are: they come with the package, so that a user need not train them."""

from pathlib import Path


def planted_model_folder() -> Path:
    """The folder of the planted model and its tokenizer, to be loaded like any other."""
    return Path(__file__).parent / "planted-model"
