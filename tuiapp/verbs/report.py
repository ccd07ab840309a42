"""`tuiapp report`: runs as a page that is read without tuiapp."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from tuiapp.actions import report
from tuiapp.verbs.output import print_outcome
from tuiapp.verbs.sources import runs_of


def report_runs(options: Namespace) -> int:
    """Writes the page, and for Markdown its figures."""
    path = Path(os.path.expanduser(options.output))
    return print_outcome(report.do(runs_of(options), path, force=options.force))
