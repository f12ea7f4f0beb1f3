"""Texts as numbers of 64 bits: to know a million texts again, and to draw from them, without keeping them."""

import hashlib


def small_hash(text: str, seed: int = 0) -> int:
    """A number that stands for the text: the same on every machine, and as good as drawn at random by the seed."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=str(seed).encode()).digest(), "big")
