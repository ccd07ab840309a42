"""`tuiapp`, `tuiapp attach` and `tuiapp replay`: the dashboard."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from argparse import Namespace

from tuiapp.library.find import find_run
from tuiapp.trainers.contract.rundir import default_runs_dir

BLAS_THREADS = "OPENBLAS_NUM_THREADS"

TURN_S = 0.001
"""How long a thread that decodes events or writes to the terminal may hold the interpreter before the one that handles
keys gets it: a key causes some ten such switches.
"""


def open_dashboard(options: Namespace) -> int:
    """Opens the dashboard, on a run if one is given; fails with a message where there is no terminal."""
    directory = options.runs_dir or default_runs_dir()
    run = find_run(options.run, directory) if options.run else None
    in_browser = "TEXTUAL_DRIVER" in os.environ  # set by `tuiapp serve`
    if not in_browser and not (sys.stdin.isatty() and sys.stdout.isatty()):
        from tuiapp.trainers.state.text import sanitize

        instead = f"tuiapp show {run.run_id}" if run else "tuiapp run quickstart"
        print(f"tuiapp: the dashboard needs a terminal. Without one: {sanitize(instead)}", file=sys.stderr)
        return 2
    # Garbage collection during imports and widget creation finds nothing and costs 40 ms of the 400 until the first
    # picture. The app enables it afterwards.
    gc.disable()
    sys.setswitchinterval(TURN_S)
    if run and BLAS_THREADS not in os.environ:
        # A thread per core for linear algebra, which the dashboard does not use, costs 40 ms. numpy reads it once, when
        # it is imported; processes that are started later get the variable's original value.
        os.environ[BLAS_THREADS] = "1"
        importlib.import_module("numpy")
        del os.environ[BLAS_THREADS]
    from tuiapp.app import TuiApp
    from tuiapp.trainers.config.settings import read_settings
    from tuiapp.trainers.state.text import sanitize

    settings, problems = read_settings()
    app = TuiApp(
        runs_dir=directory,
        run=run,
        replay_speed=options.speed,
        preset="quickstart",
        settings=settings,
        problems=problems,
        remembers=True,
    )
    app.run()
    if app.farewell:
        print("\n".join(map(sanitize, app.farewell.split("\n"))))
    return app.return_code or 0
