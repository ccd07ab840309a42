"""Turns stored pictures into PNGs to look at: `python -m tests.kit.view FILE… [-o DIRECTORY]`.

Needs the `dev` extra and the font DejaVu Sans Mono (Debian: fonts-dejavu-core).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from screenshots import picture
from tests.kit.screen_text import read


def main() -> None:
    """Write one PNG per file and print where."""
    parser = argparse.ArgumentParser(description="Turns stored pictures of screens into PNGs.")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path, help="where to; a temporary one by default")
    given = parser.parse_args()
    directory: Path = given.output or Path(tempfile.mkdtemp(prefix="pictures-"))
    directory.mkdir(parents=True, exist_ok=True)
    for file in given.files:
        path = directory / f"{file.parent.name}-{file.stem}.png"
        picture.save(read(file.read_text()), path)
        print(path)


if __name__ == "__main__":
    main()
