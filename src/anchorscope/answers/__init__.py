"""Prompts, greedy answers through the engine, grading, and the choice of items to train on."""
