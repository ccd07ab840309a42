"""A terminal dashboard for training, and what scripts report to it: `tuiapp.init`, `tuiapp.log`, `tuiapp.finish`.

Importing this imports nothing else: the reporting functions are those of `tuiapp.trainers.script`, loaded when first
used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tuiapp.trainers.script.tracking import Run as Run
    from tuiapp.trainers.script.tracking import finish as finish
    from tuiapp.trainers.script.tracking import init as init
    from tuiapp.trainers.script.tracking import log as log

__version__ = "0.2.0"


def __getattr__(name: str) -> "Any":
    from importlib.util import find_spec

    # `from tuiapp import cli` asks for the attribute before it imports the module.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tuiapp.trainers.script import tracking

    found = getattr(tracking, name)
    if name in ("init", "log", "finish", "Run"):
        globals()[name] = found
    return found
