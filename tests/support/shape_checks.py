"""How annotations of shapes are checked while tests run (`SHAPES_CHECKED` in the Makefile): beartype, as mypy reads them.

An int is a float, and of a list always the same item is checked: a random one would change the state of `random`, which
Hypothesis does not allow.
"""

from beartype import BeartypeConf, beartype

check_shapes = beartype(conf=BeartypeConf(is_pep484_tower=True, is_random=False))
