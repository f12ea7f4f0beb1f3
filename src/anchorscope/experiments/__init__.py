"""The further experiments: where a cut matters, saliency, what the model knows, whether it can tell."""
