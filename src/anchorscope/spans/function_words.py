"""Words that carry no content in a question: question words, articles, links, auxiliaries, pronouns, and its frame.

They are read as `datasets.text` reads them: folded, without apostrophes, "'s" a word of its own.
"""

from anchorscope.datasets.text import ARTICLES


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written with spaces."""
    return frozenset(text.split())


QUESTION_WORDS = word_set("what which who whom whose when where why how whats whos wheres")
"""Words that ask."""
PREPOSITIONS = word_set(
    """of in on at by for from to with without within into onto over under above below between among through across
    along around near behind beside beyond during before after since until about against as than via per out up off
    down"""
)
"""Words after which something is named."""
AUXILIARIES = word_set(
    """is are was were be been being am do does did done doing has have had having can could will would shall should
    might must isnt arent wasnt werent dont doesnt didnt hasnt havent hadnt cant couldnt wont wouldnt"""
)
"""Forms of be, do and have, and modal verbs; not "may", more often a month in questions."""
PRONOUNS = word_set(
    """i me my we our you your he him his she her hers it its they them their theirs this that these those there
    here such one ones some any each every both either neither other another anyone someone im ive hes shes theyre"""
)
"""Words that stand for something else; not "us", more often a country in questions."""

_CONJUNCTIONS = "and or but nor if so because while whereas although though"
_HOLDING = "all not no also just only very much many more most ever please 's s"

BARE_WORDS = ARTICLES | QUESTION_WORDS
"""What is left out even where a question says little else."""
FUNCTION_WORDS = BARE_WORDS | PREPOSITIONS | AUXILIARIES | PRONOUNS | word_set(f"{_CONJUNCTIONS} {_HOLDING}")
"""Words of grammar."""
FRAME_WORDS = word_set(
    """tell name names called known following given said however then else still yet too even now currently recently
    originally particularly especially usually often"""
)
"""Words of content that only frame a question ("What is the name of …") or set its tone."""
KINDS = word_set("kind type sort")
"""Words that frame a question where "of" follows them ("what kind of")."""
EMPTY_WORDS = FUNCTION_WORDS | FRAME_WORDS
"""Words that are never by themselves what a question is about."""

NAME_PARTICLES = word_set("de da di du del della dos das von van der den ter la le al el bin ibn ben bint abu")
"""Particles inside names of people, of other languages."""
_FOREIGN_LINKS = """les l des d et y e los las lo do delle degli dei die dem ein eine und vom zu zum zur ten te het een
    en og och pa av af o na ve i"""
NAME_LINKS = ARTICLES | NAME_PARTICLES | word_set(f"of 's {_FOREIGN_LINKS}")
"""Lower-case words inside a name: "The Lord of the Rings", "Juan de la Cruz"."""
TITLE_LINKS = NAME_LINKS | word_set("in on at by for from to with without into over under between and")
"""Also those that stand inside titles, but as often between two names ("Bell in Boston", "Lima and Quito")."""
