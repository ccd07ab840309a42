"""`tuiapp` and `tuiapp attach`: the dashboard."""

from __future__ import annotations

import gc
import sys
from argparse import Namespace

from trainers.contract.presets import QUICKSTART
from trainers.contract.runs import find_run
from tuiapp.verbs.sources import runs_dir


def open_dashboard(options: Namespace) -> int:
    """Open the dashboard, on a run if one is given; a clear word where there is no terminal."""
    directory = runs_dir(options)
    run = find_run(options.run, directory) if options.run else None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        instead = f"tuiapp show {run.run_id}" if run else "tuiapp run quickstart"
        print(f"tuiapp: the dashboard needs a terminal. Without one: {instead}", file=sys.stderr)
        return 2
    # Collecting while modules are imported and widgets made, none of it garbage, costs 40 ms of the 400 until the first
    # picture. The app begins to collect once that stands.
    gc.disable()
    from tuiapp.app import TuiApp

    app = TuiApp(runs_dir=directory, run=run, preset=QUICKSTART)
    app.run()
    if app.farewell:
        print(app.farewell)
    return app.return_code or 0
