"""What an interpreter has installed, found without importing any of it.

Another interpreter is asked once, in a process of its own. What it answered is kept in the user's cache directory until
the interpreter or a directory that it searches changes, as `pip install` changes one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, user_cache, write_atomically

MAX_CACHE_BYTES = 1 << 20
PROBE_TIMEOUT_S = 60.0
"""For a Python on a busy network file system."""

_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import json, os, re
def cuda_of_torch(util):
    try:
        folder = os.path.dirname(util.find_spec("torch").origin)
        with open(os.path.join(folder, "version.py")) as file:
            return re.search("^cuda.*= '([0-9.]+)'", file.read(), re.MULTILINE).group(1)
    except (AttributeError, OSError, TypeError):
        return None
found = {"version": "%d.%d.%d" % sys.version_info[:3], "searched": sys.path, "packages": {}}
if sys.version_info >= (3, 8):
    import importlib.metadata, importlib.util
    for name in sys.argv[1:]:
        if name == "torch.version.cuda":
            if cuda_of_torch(importlib.util):
                found["packages"][name] = cuda_of_torch(importlib.util)
        elif importlib.util.find_spec(name) is not None:
            try:
                found["packages"][name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found["packages"][name] = ""
print()
print(json.dumps(found))
"""
"""Runs on any Python since 2.7, which must be able to say that it is too old."""


TORCH_CUDA = "torch.version.cuda"
"""Asked for like a package: its version is that of CUDA which torch is built for; of builds for CPUs there is none."""


class Installed(msgspec.Struct, frozen=True):
    """An interpreter, and which of the packages that it was asked for it has."""

    python: str
    """The interpreter's path."""
    version: str = ""
    """Python's."""
    packages: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Import name → version; "" if its metadata has another name."""
    problem: str = ""
    """Why it cannot be asked."""

    def has(self, package: str) -> bool:
        return package in self.packages

    def version_of(self, package: str) -> str | None:
        return self.packages.get(package)


class _Own(Installed, frozen=True):
    """The interpreter that runs this, which is asked as questions come: metadata take 10 ms to load."""

    def has(self, package: str) -> bool:
        return importlib.util.find_spec(package) is not None

    def version_of(self, package: str) -> str | None:
        return _cuda_of_torch() if package == TORCH_CUDA else installed_version(package)


OWN = _Own(python=sys.executable, version="{}.{}.{}".format(*sys.version_info))


class _Answer(msgspec.Struct):
    version: str
    searched: list[str]
    packages: dict[str, str]


class _Kept(msgspec.Struct):
    asked: list[str]
    times: dict[str, int | None]
    """When the interpreter, and what it searches, last changed, in ns; None for what is not there."""
    search_path: str
    """PYTHONPATH."""
    installed: Installed


_known: dict[str, _Kept] = {}


def inspect_packages(python: str, packages: Sequence[str]) -> Installed:
    """Asks an interpreter which of the packages it has, unless it is known."""
    installed = known(python, packages)
    if installed is None:
        installed, searched = _ask(python, packages)
        prefix = os.path.dirname(os.path.dirname(python))
        places = [python, os.path.join(prefix, "pyvenv.cfg"), *searched]
        _known[python] = _Kept([*packages], _times(places), os.environ.get("PYTHONPATH", ""), installed)
        if not installed.problem:
            _keep()
    return installed


def known(python: str, packages: Sequence[str]) -> Installed | None:
    """Returns what an interpreter has answered; None if it was not asked, or has changed since. Starts no process."""
    if python == sys.executable:
        return OWN
    if python not in _known:
        _known.update({path: kept for path, kept in _read_kept().items() if path not in _known})
    kept = _known.get(python)
    if kept is None or kept.asked != [*packages] or kept.search_path != os.environ.get("PYTHONPATH", ""):
        return None
    return kept.installed if kept.times == _times(kept.times) else None


def installed_version(distribution: str) -> str | None:
    """Returns the installed version of a distribution, found without importing it; None if it is not installed."""
    # Saves 10 ms until the dashboard's first picture.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cuda_of_torch() -> str | None:
    """Returns the CUDA version that torch's version file states, without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    cuda = re.search("^cuda.*= '([0-9.]+)'", text, re.MULTILINE)
    return cuda[1] if cuda else None


def _ask(python: str, packages: Sequence[str]) -> tuple[Installed, list[str]]:
    # Another directory than ours: its modules are not the interpreter's.
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *packages],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False, cwd="/",
        )  # fmt: skip
    except OSError as error:
        return Installed(python, problem=error.strerror or str(error)), []
    except subprocess.TimeoutExpired:
        return Installed(python, problem=f"it did not answer within {PROBE_TIMEOUT_S:g} s"), []
    try:
        answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=_Answer)
    except (IndexError, ValueError):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return Installed(python, problem=lines[-1] if lines else f"it ended with exit code {done.returncode}"), []
    return Installed(python, answer.version, answer.packages), answer.searched


def _times(places: Sequence[str] | Mapping[str, object]) -> dict[str, int | None]:
    return {path: _changed_at(path) for path in places}


def _changed_at(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


def _read_kept() -> dict[str, _Kept]:
    try:
        return msgspec.json.decode(read_limited(_file(), MAX_CACHE_BYTES), type=dict[str, _Kept])
    except (OSError, ValueError, RecursionError):
        return {}


def _keep() -> None:
    answers = {**_read_kept(), **_known}.items()
    kept = {path: answer for path, answer in answers if not answer.installed.problem and os.path.exists(path)}
    # If it cannot be kept, it is asked again next time.
    with contextlib.suppress(OSError):
        make_private(_file().parent)
        write_atomically(_file(), msgspec.json.encode(kept))


def _file() -> Path:
    return user_cache() / "interpreters.json"
