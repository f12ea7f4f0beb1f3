"""The tokenizer of the planted model: one token per word, punctuation mark and line break, and a first token.

A word's token has the space before it, as in the tokenizers of large models, so that decoding gives the text back.
"""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from anchorscope.planted.language import Language

BOS, PAD, UNKNOWN = "<s>", "<pad>", "<unk>"
_SPACE = "▁"


def make_tokenizer(language: Language) -> PreTrainedTokenizerFast:
    """The tokenizer of a language; other words are unknown to it."""
    # "Question" stands at the beginning of a text, which counts as after a space; "Answer" at that of a line.
    tokens = [BOS, PAD, UNKNOWN, "\n", ":", ",", "?", f"{_SPACE}Question", "Answer"]
    tokens += [f"{_SPACE}{word}" for word in language.words()]
    built = Tokenizer(models.WordLevel({token: at for at, token in enumerate(tokens)}, unk_token=UNKNOWN))
    built.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[:,?\n]"), "isolated"),
        pre_tokenizers.Metaspace(_SPACE, prepend_scheme="first"),
    ])  # fmt: skip
    built.decoder = decoders.Metaspace(_SPACE, prepend_scheme="first")
    built.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=built, bos_token=BOS, pad_token=PAD, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
