"""What other packages add by entry points: families, dataset formats, interventions, experiments, detectors, graders.

Only names are read until a plug-in is used: then it's imported and checked, and its functions are wrapped, so that
errors name the plug-in. How to write one: docs/extending.md.
"""

import signal
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from anchorscope.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    about: str
    type: str
    """`module:name` of the class of its objects."""
    own: str
    """`module:name` of our own: a mapping by name, or objects with a `name`."""


KINDS = {
    "families": Kind(
        "model family",
        "anchorscope.models.families:Family",
        "anchorscope.models.families:FAMILIES",
    ),
    "datasets": Kind(
        "dataset format",
        "anchorscope.datasets.formats:Format",
        "anchorscope.datasets.formats:FORMATS",
    ),
    "interventions": Kind(
        "intervention",
        "anchorscope.interventions.intervention:Intervention",
        "anchorscope.catalogue:OWN_EVIDENCE",
    ),
    "experiments": Kind(
        "experiment",
        "anchorscope.experiments.experiment:Experiment",
        "anchorscope.catalogue:OWN_EVIDENCE",
    ),
    "detectors": Kind(
        "detector",
        "anchorscope.detectors.fits:DetectorPlugin",
        "anchorscope.catalogue:OWN_DETECTORS",
    ),
    "graders": Kind(
        "grader",
        "anchorscope.answers.grade:Grader",
        "anchorscope.catalogue:OWN_GRADERS",
    ),
}
"""By the last part of the entry-point group's name."""
_EVIDENCE = ("interventions", "experiments")
"""Groups that share one set of names, for `--evidence`."""


@dataclass(frozen=True)
class Plugin:
    group: str
    """The last part of the group's name."""
    name: str
    package: str
    """Its distribution."""
    version: str
    reference: str
    """`module:name` of the object."""

    def error(self, what: str) -> UserError:
        """A mistake of the plug-in, in one line."""
        return UserError(
            f"The plug-in {self.name!r} of package {self.package} {self.version} (entry point "
            f"anchorscope.{self.group}) {what}; fix or uninstall it."
        )


@cache
def installed() -> tuple[Plugin, ...]:
    points = metadata.entry_points()
    return tuple(
        Plugin(group, point.name, point.dist.name, point.dist.version, point.value)
        for group in KINDS
        for point in sorted(
            points.select(group=f"anchorscope.{group}"), key=lambda point: point.name
        )
        if point.dist is not None
    )


def plugins_of(group: str, own: Collection[str] = ()) -> dict[str, Plugin]:
    """The plug-ins of a group by name, except those whose name is taken (`check` refuses them)."""
    by_name: dict[str, Plugin] = {}
    for plugin in installed():
        if plugin.group == group and plugin.name not in own:
            by_name.setdefault(plugin.name, plugin)
    return by_name


def check(groups: Collection[str], names: Collection[str] = ()) -> None:
    """Loads all plug-ins of some groups and those of these names; refuses a taken name in any group."""
    for plugin in installed():
        _refuse_taken(plugin)
        if plugin.group in groups or plugin.name in names:
            load(plugin)


def problem(plugin: Plugin) -> str | None:
    """Why a plug-in can't be used; None if it can."""
    try:
        _refuse_taken(plugin)
        load(plugin)
    except UserError as error:
        return str(error)
    return None


def load_all(group: str) -> list[Any]:
    return [load(plugin) for plugin in plugins_of(group).values()]


@cache
def load(plugin: Plugin) -> Any:
    """The plug-in's object, checked and wrapped."""
    try:
        thing = metadata.EntryPoint(plugin.name, plugin.reference, plugin.group).load()
    except BaseException as error:
        _let_user_stop(error)
        raise plugin.error(f"failed to import: {_format_error(error)}") from error
    try:
        broken = _check_object(plugin, thing)
    except BaseException as error:
        _let_user_stop(error)
        raise plugin.error(f"failed its first check: {_format_error(error)}") from error
    if broken is not None:
        raise plugin.error(broken)
    return _wrap_functions(plugin, thing)


def _check_object(plugin: Plugin, thing: Any) -> str | None:
    """Why an object can't be used; None if it can."""
    kind = _load_reference(KINDS[plugin.group].type)
    if not isinstance(thing, kind):
        return f"is a {type(thing).__name__} and must be a {kind.__name__} ({KINDS[plugin.group].type})"
    if thing.name != plugin.name:
        return f"is called {thing.name!r} by its object; both names must be the same"
    return _LAWS[plugin.group](thing)


def load_at(group: str, name: str, home: str) -> Any:
    """The object at `module:name`, our own or a plug-in's."""
    plugin = plugins_of(group).get(name)
    return (
        load(plugin)
        if plugin is not None and plugin.reference == home
        else _load_reference(home)
    )


def packages_of(group: str, name: str | None = None) -> tuple[str, ...]:
    """The packages of a group's plug-ins, or of the one with this name; their versions are part of a step's key."""
    packages = {
        plugin.package
        for plugin in plugins_of(group).values()
        if name in (None, plugin.name)
    }
    return tuple(sorted(packages))


class WithPlugins(Mapping[str, T], Generic[T]):
    """Our own objects by name, then those of plug-ins, each imported on first use."""

    def __init__(
        self,
        own: Mapping[str, T],
        group: str,
        get: Callable[[Any], T] = lambda thing: thing,
    ) -> None:
        self.own, self.plugins, self._get = own, plugins_of(group, own), get

    def __getitem__(self, name: str) -> T:
        return (
            self.own[name] if name in self.own else self._get(load(self.plugins[name]))
        )

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.plugins

    def __len__(self) -> int:
        return len(self.own) + len(self.plugins)


def _wrap_functions(plugin: Plugin, value: Any) -> Any:
    """The same with every function in it wrapped."""
    if isinstance(value, tuple):
        return tuple(_wrap_functions(plugin, part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{
                field.name: _wrap_functions(plugin, getattr(value, field.name))
                for field in fields(value)
            },
        )
    return (
        partial(_call, plugin, value)
        if callable(value) and not isinstance(value, type)
        else value
    )


def _call(
    plugin: Plugin, function: Callable[..., Any], /, *given: Any, **named: Any
) -> Any:
    try:
        return function(*given, **named)
    except BaseException as error:
        _let_user_stop(error)
        is_ours = type(error).__module__.startswith(
            "anchorscope."
        )  # on purpose: a bad row, a mistake of the user
        if is_ours or isinstance(error, OSError | MemoryError):
            raise
        raise plugin.error(f"failed: {_format_error(error)}") from error


def _let_user_stop(error: BaseException) -> None:
    """Raises an interruption by the user again; `sys.exit` of a plug-in, or its own KeyboardInterrupt, is its failure.

    In a command the user's is a `Stopped`; elsewhere Python's own handler raises it.
    """
    kind = type(error)
    if kind is KeyboardInterrupt:
        is_the_users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    else:
        is_ours = kind.__module__.startswith("anchorscope.")
        is_the_users = is_ours and isinstance(error, KeyboardInterrupt)
    if is_the_users:
        raise error


def _format_error(error: BaseException) -> str:
    """An exception, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    try:
        text = (str(error).splitlines() or [""])[0].rstrip(".")
    except BaseException:  # its text is a plug-in's code too
        text = "its own text cannot be read"
    return (
        f"{type(error).__name__}: {text} ({Path(where.filename).name}:{where.lineno})"
    )


def _refuse_taken(plugin: Plugin) -> None:
    if plugin.name in {
        getattr(thing, "name", thing)
        for thing in _load_reference(KINDS[plugin.group].own)
    }:
        raise plugin.error("has the name of one that anchorscope has itself")
    together = _EVIDENCE if plugin.group in _EVIDENCE else (plugin.group,)
    first = next(
        other
        for other in installed()
        if other.name == plugin.name and other.group in together
    )
    if first != plugin:
        raise plugin.error(f"has the name of a plug-in of package {first.package}")


def _load_reference(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _check_family(family: Any) -> str | None:
    kinds = family.model_types
    if (
        not isinstance(kinds, tuple)
        or not kinds
        or not all(isinstance(kind, str) for kind in kinds)
    ):
        return f"has model_types {kinds!r}, and they must be a tuple of names"
    own = {
        kind
        for other in _load_reference(KINDS["families"].own)
        for kind in other.model_types
    }
    taken = [kind for kind in kinds if kind in own]
    return (
        f"lays out the model type {taken[0]!r}, which anchorscope does itself"
        if taken
        else None
    )


def _check_intervention(intervention: Any) -> str | None:
    if (intervention.keys is None) == (intervention.rewrite is None):
        return "must have either keys to cut or a rewrite"
    if intervention.entry.experiment != intervention.name:
        return f"is of the experiment {intervention.entry.experiment!r}; a plug-in's must have its own name"
    return None


def _check_grader(grader: Any) -> str | None:
    right, wrong = (
        grader.grade("Paris", ("Paris",), None),
        grader.grade("", ("Paris",), None),
    )
    if (right, wrong) == (True, False):
        return None
    return f"grades 'Paris' as {right!r} and '' as {wrong!r} where 'Paris' is accepted; they must be True and False"


def _check_functions(thing: Any, *names: str) -> str | None:
    return next(
        (
            f"has no function {name!r}"
            for name in names
            if not callable(getattr(thing, name))
        ),
        None,
    )


_LAWS: dict[str, Callable[[Any], str | None]] = {
    "families": _check_family,
    "datasets": lambda thing: _check_functions(thing, "recognises", "translate"),
    "interventions": _check_intervention,
    "experiments": lambda thing: _check_functions(thing, "run"),
    "detectors": lambda thing: _check_functions(thing, "fit"),
    "graders": _check_grader,
}
"""Why an object can't be used; None if it can."""
