"""`tuiapp report`: runs as a page that is read without tuiapp."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from tuiapp.library.report_files import write_report
from tuiapp.trainers.state.text import sanitize
from tuiapp.verbs.sources import runs_of


def report_runs(options: Namespace) -> int:
    """Writes the page, and for Markdown its figures."""
    path = Path(os.path.expanduser(options.output))
    write_report(path, runs_of(options), force=options.force)
    print(sanitize(str(path)), file=sys.stderr)
    return 0
