"""torch and transformers for a command: the code that runs models, without what no command of ours uses.

`import transformers.modeling_utils` also loads torch's compiler, its distributed tensors with sympy, scipy and
scikit-learn. Without them LlamaForCausalLM is imported in 5.1 instead of 8.0 s of CPU time (2.7 of them torch; one
machine, transformers 5.22). A command owns its process, so it may leave them out; a program that imports anchorscope
keeps what its own transformers imports.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
_UNUSED = ("scipy", "sklearn")  # transformers computes losses of image models and speculative decoding with them


def import_model_code() -> None:
    """Imports torch and the base of every transformers model; does nothing where transformers is imported already."""
    if "transformers" in sys.modules:
        return
    import torch

    if _COMPILER not in sys.modules:
        sys.modules[_COMPILER] = compiler = DeferredCompiler()
        compiler.load_alone("_trace_wrapped_higher_order_op")  # transformers' masks name a class of it
    with _not_installed(*_UNUSED), _without(torch.distributed):
        import transformers.modeling_utils  # noqa: F401 - imported here so that no other import does it in full


class DeferredCompiler(ModuleType):
    """`torch._dynamo`, loaded when something is compiled; until then it takes the marks that modules put on functions.

    Marks are passed on when it is loaded, so that `torch.compile` finds every function marked as it would have been.
    """

    def __init__(self) -> None:
        super().__init__(_COMPILER)
        spec = importlib.util.find_spec(_COMPILER)
        if spec is None or spec.loader is None:
            raise ImportError(f"torch has no {_COMPILER}")
        self.__spec__, self.__file__ = spec, spec.origin
        self._allowed: list[Callable[..., Any]] = []
        self._lock, self._begun = threading.RLock(), False

    def __getattr__(self, name: str) -> Any:
        with self._lock:  # another thread waits until all of it is there
            if not self._begun and (name == "__path__" or not name.startswith("__")):  # its path: for a submodule
                self._begun = True
                self.__path__ = list(self.__spec__.submodule_search_locations or ())  # type: ignore[union-attr]
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                self.__class__ = ModuleType  # type: ignore[assignment]
                for function in self._allowed:
                    self.allow_in_graph(function)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {_COMPILER!r} has no attribute {name!r}") from None

    def load_alone(self, name: str) -> None:
        """Imports a submodule without the rest."""
        self.__path__ = list(self.__spec__.submodule_search_locations or ())  # type: ignore[union-attr]
        try:
            importlib.import_module(f"{_COMPILER}.{name}")
        finally:
            del self.__path__

    def allow_in_graph(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Marks a function that a graph calls as it is."""
        self._allowed.append(function)
        return function

    @staticmethod
    def assume_constant_result(function: Any) -> Any:
        """Marks a function whose result a graph takes as a constant."""
        function._dynamo_marked_constant = True
        return function

    def disable(self, function: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Marks a function that is not compiled; a plain call as long as there is no compiler."""
        if function is None:
            return lambda given: self.disable(given, recursive, **options)
        if not isinstance(function, FunctionType):
            return self.__getattr__("disable")(function, recursive, **options)
        marked = None

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal marked
            if marked is None and type(self) is ModuleType:
                marked = self.disable(function, recursive, **options)
            return (marked or function)(*args, **kwargs)

        return call


@contextmanager
def _not_installed(*packages: str) -> Iterator[None]:
    """Packages that are not there for whoever looks for them meanwhile; those that are imported already stay."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: `import` and `find_spec` find nothing
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def _without(distributed: Any) -> Iterator[None]:
    """torch.distributed says that it is not there; transformers asks once and remembers."""
    before = distributed.is_available
    distributed.is_available = lambda: False
    try:
        yield
    finally:
        distributed.is_available = before
