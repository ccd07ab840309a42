"""The formats of an export, a row each, and the parts of a run's figures that they write.

The rows import nothing heavy: the command line and the dialog read them. A row's module has
`write(path, run, what) -> int`, which makes the file or fills the directory and returns the number of rows, or of
entries of ranks; a text format has `write_rows(file, run, what) -> int` in its place. They raise OSError.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from tuiapp.trainers.config.mirror import INSTALL, PACKAGE

if TYPE_CHECKING:
    from tuiapp.trainers.contract.rundir import RunDir

What: TypeAlias = Literal["steps", "evaluations", "metrics", "samples", "predictions", "epochs", "media"]
"""Metrics of steps, of evaluations, both, the sampler's figures, how often classes were predicted, epochs, or files."""
TABLES: tuple[What, ...] = get_args(What)
NO_METRICS: tuple[What, ...] = ("samples", "predictions", "epochs", "media")


@dataclass(frozen=True, slots=True)
class Exporter:
    name: str
    module: str
    """The module's name in this package."""
    suffix: str = ""
    """The suffix of its files; "" if it writes a directory of metrics."""
    is_text: bool = False
    """Whether the module has `write_rows`, for a terminal or a pipe, too."""
    package: str = ""
    """The import name of the package that writes the format; "" if none is needed."""
    install: str = ""
    mark: str = ""
    """What is in the name of every file of a directory of metrics, or of a directory above the file."""
    reader: str = ""
    """The command that shows or uploads a directory."""

    @property
    def is_directory(self) -> bool:
        return not self.suffix

    def print(self, run: RunDir, what: What) -> int:
        """Writes a table to stdout; only if `is_text`."""
        return cast(int, self._module().write_rows(sys.stdout, run, what))

    def write(self, path: Path, run: RunDir, what: What) -> int:
        """Makes the file, or the directory, which do not exist yet."""
        if self.is_directory:
            path.mkdir()
        if not self.is_text:
            return cast(int, self._module().write(path, run, what))
        with path.open("x", encoding="utf-8", newline="") as file:
            return cast(int, self._module().write_rows(file, run, what))

    def _module(self) -> Any:
        return importlib.import_module(f"{__name__}.{self.module}")


EXPORTERS = {
    row.name: row
    for row in (
        Exporter("csv", "csv_table", ".csv", is_text=True),
        Exporter("jsonl", "jsonl", ".jsonl", is_text=True),
        Exporter("parquet", "parquet", ".parquet", package="pyarrow", install="pip install pyarrow"),
        Exporter(
            "tensorboard",
            "tensorboard",
            package=PACKAGE,
            install=INSTALL,
            mark="tfevents",
            reader="tensorboard --logdir {}",
        ),
        Exporter(
            "wandb-offline",
            "wandb_offline",
            package="wandb",
            install="pip install wandb",
            mark="offline-run-",
            reader="wandb sync {}/offline-run-*",
        ),
    )
}


def names_of(*, directories: bool) -> list[str]:
    """Returns the names of the exporters that write directories, or of those that write files."""
    return [row.name for row in EXPORTERS.values() if row.is_directory == directories]
