"""Runs one of our modules in any interpreter: `python -P …/tuiapp/trainers/config/bootstrap.py MODULE ARGUMENT…`.

The package `tuiapp` is the one that this file is in, also where the interpreter has another one installed. All else is
the interpreter's own: our directory is not on its search path, where the packages beside `tuiapp`, its NumPy and
frameworks, would come with it.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys


def command(python: str, module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module in any interpreter; -P keeps this directory off its search path."""
    return [python, "-P", os.path.abspath(__file__), module, *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module in our interpreter; -P keeps the working directory off its search path."""
    return [sys.executable, "-P", "-m", name, *arguments]


def main() -> None:
    """Does what `python -m MODULE ARGUMENT…` does."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = importlib.util.spec_from_file_location(
        "tuiapp", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["tuiapp"] = package
    spec.loader.exec_module(package)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
