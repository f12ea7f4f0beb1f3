"""Checks annotations of shapes while tests run, in the modules that the variable `SHAPES_CHECKED` names (Makefile).

jaxtyping's own `--jaxtyping-packages` wraps every function, also those without shapes and those defined inside others,
each time again, and checks arguments twice: it takes half as much time again as the laws without it. All other types
are mypy's to check.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import jaxtyped

# An int is also a float, as for mypy; of a list the first item is checked: a random one would change the state of
# `random`, which Hypothesis forbids.
_check_types = beartype(conf=BeartypeConf(is_pep484_tower=True, is_random=False))


def install(packages: Sequence[str]) -> None:
    """Checks shapes in these packages, none of which may be imported yet."""
    imported = [name for name in packages if name in sys.modules]
    assert not imported, (
        f"already imported, so that their shapes would not be checked: {imported}"
    )
    sys.meta_path.insert(0, _Finder(packages))


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(
            name == package or name.startswith(f"{package}.")
            for package in self._packages
        ):
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None, f"there is no module {name}"
        assert isinstance(spec.loader, SourceFileLoader)
        spec.loader = _CheckedModule(name, spec.loader.path)
        return spec


class _CheckedModule(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _check_members(module, module.__name__)


def _check_members(holder: ModuleType | type, module: str) -> None:
    """Puts checked functions in place of those that were defined in a module or class."""
    for name, value in list(vars(holder).items()):
        if isinstance(value, type) and value.__module__ == module:
            _check_members(value, module)
        elif isinstance(value, classmethod | staticmethod):
            setattr(holder, name, type(value)(_checked(value.__func__, module)))
        elif isinstance(value, property):
            setattr(
                holder,
                name,
                property(
                    _checked(value.fget, module), value.fset, value.fdel, value.__doc__
                ),
            )
        elif isinstance(value, FunctionType):
            setattr(holder, name, _checked(value, module))


def _checked(function: Any, module: str) -> Callable[..., Any]:
    """The function, checked if shapes are in its signature."""
    if function.__module__ != module and function.__name__ not in (
        "__init__",
        "__new__",
    ):  # of dataclasses, tuples
        return function
    if "jaxtyping." not in str(function.__annotations__) or inspect.isgeneratorfunction(
        inspect.unwrap(function)
    ):
        return function
    typed = _check_types(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):  # in which a dimension has one size
            return typed(*args, **kwargs)

    return checked
