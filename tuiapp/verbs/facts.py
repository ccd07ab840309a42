"""What the verbs say of a run: the same wherever it is said."""

from __future__ import annotations

import shlex

from trainers.config.options import ConfigError
from trainers.config.run_config import RunConfig
from trainers.contract.digest import read_digest
from trainers.contract.facts import config_facts, run_facts
from trainers.contract.journal import JournalReader
from trainers.contract.manifest import CheckpointDir, best_checkpoint, list_checkpoints
from trainers.contract.rundir import RunDir
from trainers.contract.summary import RunInfo, read_config, summarise
from tuiapp.library.find import default_runs_dir
from tuiapp.state.efficiency import Efficiency, EfficiencyMeter
from tuiapp.state.text import sanitize


class UsageError(Exception):
    """Arguments that do not go together; the message says which."""


def list_facts(info: RunInfo) -> dict[str, object]:
    """A run as a list of runs tells of it, as JSON holds it."""
    config = info.config
    return {
        **run_facts(info.directory, info.status, info.summary),
        "best_accuracy": info.best_accuracy,
        **config_facts(config),
        "platform": config.platform if config else None,
        "started": info.started,
        "reason": info.reason,
        "problem": info.problem,
    }


def run_efficiency(info: RunInfo) -> Efficiency:
    """What a run has made of its devices, over all of its journal."""
    meter = EfficiencyMeter()
    if info.is_readable:
        digest = read_digest(info.directory)
        if digest is not None:
            meter.load(digest)
        reader = JournalReader(info.directory.journal, digest.offset if digest else 0)
        while events := reader.read():
            for event in events:
                meter.add(event)
    return meter.efficiency()


def checkpoint_facts(checkpoints: list[CheckpointDir]) -> list[dict[str, object]]:
    """A run's checkpoints as JSON holds them."""
    best = best_checkpoint(checkpoints)
    return [
        {
            "name": one.path.name,
            "directory": str(one.path),
            "step": one.manifest.step,
            "epoch": one.manifest.epoch,
            "accuracy": one.manifest.accuracy,
            "bytes": one.bytes,
            "finite": one.manifest.finite,
            "best": one is best,
        }
        for one in checkpoints
    ]


def resume_command(run: RunDir) -> str:
    """What goes on with a run; "" when it is live, has made all its steps, or cannot be resumed."""
    try:
        config = read_config(run)
    except (ConfigError, OSError):
        return ""
    info = summarise(run)
    if info.is_live or info.status == "completed" or not info.is_readable or not _has_more(run, config):
        return ""
    name = run.run_id if run.path.parent == default_runs_dir() else shlex.quote(str(run.path))
    return f"tuiapp run --resume {name}"


def resume_hint(run: RunDir) -> str:
    """The same as a line that says what it is for; "" for none."""
    command = resume_command(run)
    return sanitize(f"to go on: {command}") if command else ""


def _has_more(run: RunDir, config: RunConfig) -> bool:
    finite = [one.manifest.step for one in list_checkpoints(run.checkpoints)[0] if one.manifest.finite]
    return bool(finite) and finite[0] < config.total_steps
