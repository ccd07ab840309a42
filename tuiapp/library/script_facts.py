"""What a script says of its run, complete: for exports and comparisons."""

from __future__ import annotations

from dataclasses import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.view.run_values import known_values


def with_facts(info: RunInfo) -> RunInfo:
    """Completes what a script says of its run, of which a summary reads only the ends of the journal."""
    if not info.is_readable or (info.config is not None and BACKENDS[info.config.backend].builtin):
        return info
    return replace(info, facts=read_run(info.directory).facts)


def config_of(run: RunDir) -> dict[str, object]:
    """A run's configuration: the keys that it uses, and what its script says of it."""
    return known_values(with_facts(summarise(run)))
