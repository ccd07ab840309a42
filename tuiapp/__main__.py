"""`python -m tuiapp` and the `tuiapp` command."""

from __future__ import annotations

import sys

from tuiapp.cli import main

if __name__ == "__main__":
    sys.exit(main())
