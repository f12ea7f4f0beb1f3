"""Characters to tokens and back.

A token belongs to a span if one of its characters lies in it, white space not counted: " France?" belongs to "France",
the space before a span to nothing. Tokens do not respect characters: a byte-level tokenizer may cut an emoji into four
tokens, all of which then have that one character; and special tokens have no characters, so that no span holds them.

Generated ids come without offsets. `offsets_by_decoding` finds them by decoding longer and longer prefixes: what a
token adds to the text is its place. Text is never tokenised again, since that may give other tokens. The prefixes of a
long answer are decoded from a window of tokens before their end (`prefix_texts`), and one at a time: all of them at
once would need memory quadratic in the answer's length, 24 GB for 50,000 letters.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from operator import itemgetter

from anchorscope.spans.char_spans import merged

Offsets = list[tuple[int, int]]
"""Characters [start, end) of a text that each token has a part in."""
UNFINISHED = "\ufffd"
"""What a decoder writes for bytes that are no character yet."""
WINDOW = 256
"""Answers of at most so many tokens are decoded from their first token on; longer ones from at most about so many."""
_FEW = 16  # spans up to which looking at all of them is faster than a search
_end_of = itemgetter(1)
_CONTEXT = 32  # tokens before a place in the text without which its decoding may differ: spaces, unfinished characters


def tokens_in_spans(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], text: str) -> list[int]:
    """Indices of the tokens with a visible character inside a span; `offsets` are [start, end) characters of `text`."""
    spans = merged(span for span in spans if span[0] < span[1])
    if not spans:
        return []
    first, last = spans[0][0], spans[-1][1]
    found = []
    for index, (start, end) in enumerate(offsets):  # plain steps only: this is done for every token of every question
        if start < last and first < end:
            near = spans
            if len(spans) > _FEW:  # no more of them than it has characters can touch a token
                place = bisect_right(spans, start, key=_end_of)
                near = spans[place : place + end - start]
            for begin, stop in near:
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
    if len(ids) > WINDOW:
        text, offsets = offsets_from_prefixes(prefix_texts(decode, ids))
        if text == decode(list(ids)):
            return text, offsets
    return offsets_from_prefixes(decode(list(ids[:end])) for end in range(1, len(ids) + 1))


def prefix_texts(decode: Callable[[list[int]], str], ids: Sequence[int]) -> Iterator[str]:
    """The texts of ids[:1], ids[:2] and so on, each decoded from a window of ids at its end; ids may grow meanwhile.

    The text of ids[:end] is `head`, the text of ids[:base], and what decode(ids[first:end]) adds to `lead`, which is
    decode(ids[first:base]). The window moves on only where it gives the text that the one before gives; where an id
    changes characters of `lead` (one more byte can undo a whole run of them), the window begins anew at the first id.
    """
    first, head, lead = 0, "", ""
    complete: list[int] = []  # ends of prefixes, in the window, whose last character is finished
    end = 0
    while end < len(ids):
        end += 1
        part = decode(list(ids[first:end]))
        if not part.startswith(lead):
            first, head, lead, complete = 0, "", "", []
            part = decode(list(ids[:end]))
        text = head + part[len(lead) :]
        yield text
        if text.endswith(UNFINISHED):
            continue
        complete.append(end)
        if end - first < WINDOW:
            continue
        base = max((one for one in complete if one <= end - _CONTEXT), default=0)
        start = max((one for one in complete if one <= base - _CONTEXT), default=0)
        next_lead = decode(list(ids[start:base]))
        if start <= first or not next_lead or UNFINISHED in next_lead:
            continue
        next_head = head + decode(list(ids[first:base]))[len(lead) :]
        next_part = decode(list(ids[start:end]))
        if next_part.startswith(next_lead) and next_head + next_part[len(next_lead) :] == text:
            first, head, lead = start, next_head, next_lead
            complete = [one for one in complete if one > start]


def offsets_from_prefixes(prefixes: Iterable[str]) -> tuple[str, Offsets]:
    """The same from the texts of ids[:1], ids[:2] and so on up to all of them.

    An id that ends inside a character shares the whole character with the ids that finish it; an id that adds nothing
    to the text (a special token that `decode` skips) gets an empty place.
    """
    text, settled = "", 0  # the text so far, and how much of it later ids cannot change any more
    offsets: Offsets = []
    waiting: list[int] = []  # ids whose last character is not finished yet
    for index, longer in enumerate(prefixes):
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
