"""Finds out how a process ends: by an exception, Ctrl-C, an exit code, or at the end of its script.

Python names an exception to `sys.excepthook`, but the exit code to nobody: `sys.exit`, `exit` and `quit` are wrapped to
note it. A script's own `raise SystemExit(3)` passes unseen, as if the script had reached its end.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

End: TypeAlias = Callable[[BaseException | None], None]

_hooked = False
_left: SystemExit | None = None
"""The exception by which the script ends, if it has called `sys.exit` and does not catch it."""


class _Raised:
    """Tells a SystemExit that the script caught from the one that ends it.

    Python drops the exception before it calls atexit's functions, and `sys.exc_info` is empty there: a script that ends
    by `sys.exit(3)` looks like one that caught it. This object is deleted with the exception: by running code if it was
    caught, by no code if the interpreter ends.
    """

    def __init__(self, exit: SystemExit) -> None:
        self._exit = exit

    def __del__(self) -> None:
        global _left
        try:
            sys._getframe(1)
        except Exception:
            return
        if _left is self._exit:
            _left = None


def hook_exit(end: End, forked: Callable[[], None]) -> None:
    """Calls `end` when the process ends, with what ended it, and `forked` in every child that it forks."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # A second Ctrl-C.
        with suppress(KeyboardInterrupt):
            end(error)
        before(kind, error, trace)

    sys.excepthook = hook
    sys.exit = _noting(sys.exit)
    if (site := sys.modules.get("_sitebuiltins")) is not None:
        site.Quitter.__call__ = _noting(site.Quitter.__call__)

    def at_exit() -> None:
        end(sys.exc_info()[1] or (_left if "ipykernel" not in sys.modules else None))

    def in_child() -> None:
        global _hooked
        _hooked = False
        forked()

    atexit.register(at_exit)
    os.register_at_fork(after_in_child=in_child)
    if (process := current_process()) is not None and process.name != "MainProcess":
        # It ends without atexit's functions.
        sys.modules["multiprocessing.util"].Finalize(None, at_exit, exitpriority=1)


def current_process() -> Any:
    """Returns this process as multiprocessing knows it; None if nobody has imported that."""
    module = sys.modules.get("multiprocessing.process")
    return module.current_process() if module is not None else None


def _noting(leave: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def note_exit(*status: Any, **named: Any) -> NoReturn:
        global _left
        try:
            leave(*status, **named)
        except SystemExit as error:
            _left = SystemExit(error.code)
            error.__dict__["tuiapp"] = _Raised(_left)
            raise

    return note_exit
