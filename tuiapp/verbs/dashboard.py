"""`tuiapp`, `tuiapp attach` and `tuiapp replay`: the dashboard."""

from __future__ import annotations

import gc
import sys
from argparse import Namespace

from trainers.contract.newer import why_not_read
from tuiapp.library.find import default_runs_dir, find_run

TURN_S = 0.001
"""How long a thread that decodes events or writes to the terminal may keep the interpreter from the one that answers
keys: what a key sets off hands it over some ten times, and waits for it as often."""


def open_dashboard(options: Namespace) -> int:
    """Open the dashboard, on a run if one is given; a clear word where there is no terminal."""
    directory = options.runs_dir or default_runs_dir()
    run = find_run(options.run, directory) if options.run else None
    if run and (older := why_not_read(run)):
        from tuiapp.verbs.facts import UsageError

        raise UsageError(f"{run.run_id} cannot be opened: {older}.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from tuiapp.state.text import sanitize

        instead = f"tuiapp show {run.run_id}" if run else "tuiapp run quickstart"
        print(f"tuiapp: the dashboard needs a terminal. Without one: {sanitize(instead)}", file=sys.stderr)
        return 2
    # Collecting while modules are imported and widgets made, none of it garbage, costs 40 ms of the 400 until the first
    # picture. The app begins to collect once that stands.
    gc.disable()
    sys.setswitchinterval(TURN_S)
    from trainers.config.settings import read_settings
    from tuiapp.app import TuiApp
    from tuiapp.state.text import sanitize

    settings, problems = read_settings()
    app = TuiApp(
        runs_dir=directory,
        run=run,
        replay_speed=options.speed,
        preset="quickstart",
        settings=settings,
        problems=problems,
    )
    app.run()
    if app.farewell:
        print("\n".join(map(sanitize, app.farewell.split("\n"))))
    return app.return_code or 0
