"""Characters to tokens and back.

A token belongs to a span if one of its characters lies in it, white space not counted: " France?" belongs to "France",
the space before a span to nothing. Tokens do not respect characters: a byte-level tokenizer may cut an emoji into four
tokens, all of which then have that one character; and special tokens have no characters, so that no span holds them.

Generated ids come without offsets. `offsets_by_decoding` finds them by decoding longer and longer beginnings: what a
token adds to the text is its place. Text is never tokenised again, since that may give other tokens.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile

Offsets = list[tuple[int, int]]
"""Characters [start, end) of a text that each token has a part in."""
UNFINISHED = "\ufffd"
"""What a decoder writes for bytes that are no character yet."""


def tokens_in_spans(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], text: str) -> list[int]:
    """Indices of the tokens with a visible character inside a span; `offsets` are [start, end) characters of `text`."""
    if not spans:
        return []
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    found = []
    for index, (start, end) in enumerate(offsets):  # plain steps only: this is done for every token of every question
        if start < last and first < end:
            for begin, stop in spans:
                shared = text[start if start > begin else begin : end if end < stop else stop]
                if shared and not shared.isspace():
                    found.append(index)
                    break
    return found


def _shared(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    if second.startswith(first):  # nearly always: the second is the first with one token more
        return len(first)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def offsets_by_decoding(decode: Callable[[list[int]], str], ids: Sequence[int]) -> tuple[str, Offsets]:
    """The text of generated ids, and the characters [start, end) of it that each id has a part in."""
    return offsets_by_beginnings([decode(list(ids[: index + 1])) for index in range(len(ids))])


def offsets_by_beginnings(beginnings: Sequence[str]) -> tuple[str, Offsets]:
    """The same from the texts of ids[:1], ids[:2] and so on up to all of them.

    An id that ends inside a character shares the whole character with the ids that finish it; an id that adds nothing
    to the text (a special token that `decode` skips) gets an empty place.
    """
    text, settled = "", 0  # the text so far, and how much of it later ids cannot change any more
    offsets: Offsets = []
    waiting: list[int] = []  # ids whose last character is not finished yet
    for index, longer in enumerate(beginnings):
        if longer == text and not waiting:
            offsets.append((len(text), len(text)))
            continue
        same = _shared(text, longer)
        finished = len(longer.rstrip(UNFINISHED))
        if finished > settled:
            for earlier in waiting:  # bytes that turned out to be no character keep their marks
                offsets[earlier] = (offsets[earlier][0], max(offsets[earlier][1], same))
            waiting = []
        if finished < len(longer):
            # How many marks an unfinished character has depends on the decoder; it will be one character.
            offsets.append((min(same, finished), finished + 1))
            waiting.append(index)
        else:
            offsets.append((same, finished))
        text, settled = longer, finished
    for earlier in waiting:
        offsets[earlier] = (offsets[earlier][0], len(text))
    # A decoder that tidies up spaces may take back characters that it gave before.
    return text, [(min(start, len(text)), min(end, len(text))) for start, end in offsets]
