"""The environments that the backends' ranks run in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainers.config.catalog import BACKENDS
from trainers.config.installed import Installed
from trainers.config.interpreters import Interpreter, find_interpreters, why_not
from trainers.config.machine import Machine


class Environment(NamedTuple):
    """A backend's."""

    backend: str
    interpreter: Interpreter
    installed: Installed | None
    """None if it was never asked."""
    unavailable: str
    """Why ranks cannot run in it; "" if they can, or if it was never asked."""

    @property
    def versions(self) -> dict[str, str]:
        """NumPy's and the backend's packages'."""
        if self.installed is None or not BACKENDS[self.backend].builtin:
            return {}
        names = (*BACKENDS[self.backend].packages, "numpy")
        found = {name: self.installed.version_of(name) for name in names}
        return {name: version for name, version in found.items() if version}

    def without_gpus(self, machine: Machine) -> str:
        """Why it cannot use GPUs here; "" if it can."""
        if not machine.gpus:
            return machine.gpu_problem
        return self.unavailable or (BACKENDS[self.backend].without_gpus(self.installed) if self.installed else "")

    def words(self, machine: Machine | None) -> str:
        """The interpreter, if it is not tuiapp's own, what it has, and whether it can use the GPUs that are here."""
        parts = [] if self.interpreter.origin == "own" else [self.interpreter.python]
        if parts and self.installed:
            parts += [f"Python {self.installed.version}", *(f"{name} {of}" for name, of in self.versions.items())]
        if machine and machine.gpus and not self.unavailable and (reason := self.without_gpus(machine)):
            parts.append(f"not on the GPUs: {reason}")
        return ", ".join(parts)


def find_environments() -> list[Environment]:
    """All backends' environments, as far as they are known; starts no process."""
    found = find_interpreters().items()
    return [Environment(backend, one, one.known, why_not(backend, one)) for backend, one in found]


def look_at_environments() -> Sequence[Environment]:
    """All backends' environments; asks the interpreters that are not known, which takes a while."""
    for backend, interpreter in find_interpreters().items():
        if BACKENDS[backend].builtin and not why_not(backend, interpreter):
            interpreter.inspect()
    return find_environments()
