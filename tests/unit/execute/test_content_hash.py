"""The hash of a result does not hang on how its bytes are cut, and sees every one of them."""

import hashlib

import numpy as np
import pytest

from anchorscope.execute import content_hash as file
from anchorscope.execute.content_hash import content_hash, in_chunks
from anchorscope.execute.packed_file import in_one_piece


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(file, "CHUNK", 100)


@pytest.mark.parametrize("length", [0, 1, 99, 100])
def test_up_to_a_chunk_it_is_sha256(length):
    assert content_hash([b"a" * length]) == hashlib.sha256(b"a" * length).hexdigest()


def test_the_same_bytes_have_the_same_hash_however_they_are_cut():
    whole = np.random.default_rng(0).integers(0, 256, 1_050, dtype=np.uint8).tobytes()
    wanted = content_hash([whole])
    for step in (1, 7, 100, 333, 2_000):
        pieces = [memoryview(whole)[start : start + step] for start in range(0, len(whole), step)]
        assert content_hash([b"", *pieces]) == wanted
        assert in_one_piece([b"", *pieces]).tobytes() == whole
        assert [sum(map(len, chunk)) for chunk in in_chunks(pieces)] == [100] * 10 + [50]
    chunks = [hashlib.sha256(whole[start : start + 100]).digest() for start in range(0, len(whole), 100)]
    assert wanted == hashlib.sha256(b"sha256 of chunks" + b"".join(chunks)).hexdigest()


def test_every_byte_and_their_number_count():
    whole = bytes(range(250)) * 2
    hashes = {content_hash([whole])}
    for place in (0, 99, 100, 250, 499):
        hashes.add(content_hash([whole[:place], bytes([whole[place] ^ 1]), whole[place + 1 :]]))
    hashes |= {content_hash([whole[:-1]]), content_hash([whole, b"\0"]), content_hash([whole[100:], whole[:100]])}
    assert len(hashes) == 9
