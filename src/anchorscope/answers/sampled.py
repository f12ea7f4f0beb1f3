"""What sampled answers tell: how many agree with the model's own answer, and how many different things they say.

**Self-consistency** is the share of samples that are the answer, word for word after the grader's folding (case,
accents, punctuation, articles, number words). **Semantic entropy** first puts samples that say the same into one
cluster: equal after folding, or one named in the other as the grader would accept it ("Paris" and "It is Paris"). What
follows is the entropy of the clusters' shares, in nats: 0 where all say the same, log n where no two do. Clusters are
the connected components of "says the same", so that the order of the samples does not matter.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from anchorscope.answers.grade import grade
from anchorscope.datasets.text import question_key

Same = Callable[[str, str], bool]
"""Whether two answers say the same; asked once for every two that are written differently."""


def folded(text: str) -> str:
    """An answer as it is compared; one of symbols alone stands for itself."""
    return question_key(text)


def same_answer(one: str, other: str) -> bool:
    """Whether two answers are equal once folded, or either is right by the grader where the other is accepted."""
    return folded(one) == folded(other) or grade(one, [other]) or grade(other, [one])


def self_consistency(answer: str, samples: Sequence[str]) -> float:
    """The share of samples that are the answer."""
    _refuse_none(samples)
    wanted = folded(answer)
    return sum(folded(sample) == wanted for sample in samples) / len(samples)


def clusters(samples: Sequence[str], same: Same = same_answer) -> list[int]:
    """The cluster of each sample, numbered as they first appear; `same` may be a model of entailment."""
    texts = [folded(sample) for sample in samples]
    written: dict[str, str] = {}  # each wording once
    for text, sample in zip(texts, samples, strict=True):
        written.setdefault(text, sample)
    names = list(written)
    cluster = {name: name for name in names}
    for place, name in enumerate(names):
        for other in names[:place]:
            if cluster[name] != cluster[other] and same(written[name], written[other]):
                joined, into = cluster[name], cluster[other]
                cluster |= {one: into for one, own in cluster.items() if own == joined}
    numbers: dict[str, int] = {}
    return [numbers.setdefault(cluster[text], len(numbers)) for text in texts]


def semantic_entropy(samples: Sequence[str], same: Same = same_answer) -> float:
    """Entropy of the clusters' shares, in nats."""
    _refuse_none(samples)
    counts = Counter(clusters(samples, same)).values()
    return sum(count / len(samples) * math.log(len(samples) / count) for count in counts)


def _refuse_none(samples: Sequence[str]) -> None:
    if not samples:
        raise ValueError("no sampled answers: their share and entropy are not defined")
