"""Starts a run: checks it, makes its directory, and starts its supervisor or submits its Slurm job."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.mirror import OFF, mirror_fault, place_mirror
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import Plan, read_plan
from tuiapp.trainers.config.run_config import OPTIONS, RunConfig
from tuiapp.trainers.config.slurm import SlurmError
from tuiapp.trainers.contract import gpu_leases
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import MAX_NAME_CHARACTERS, About, read_about
from tuiapp.trainers.launch.directory import make_directory, working_directory
from tuiapp.trainers.launch.prepare import LaunchError, prepare
from tuiapp.trainers.launch.processes import apart, start_job, start_supervisor
from tuiapp.trainers.launch.resume import go_on
from tuiapp.trainers.state.summary import run_name

CHOICES = 10
"""How often GPUs are chosen anew because others took them meanwhile; then they are shared."""
MIRROR_VARIABLE = "TUIAPP_MIRROR"
"""The key `mirror` of a run that a script begins by itself."""
NETWORK_VARIABLE = "TUIAPP_NETWORK"
"""The key `network` of such a run, whose ranks are on several nodes."""


def launch(config: RunConfig, runs_dir: Path, machine: Machine | None = None, about: About | None = None) -> RunDir:
    """Starts a run in processes of its own; returns its directory once the supervisor is up.

    `auto` values are resolved for this machine, inspected if not given; `about` is what the run is called. Raises
    ConfigError if it cannot run the configuration, LaunchError if the directory cannot be written, or the supervisor
    does not start.
    """
    machine = machine or inspect_machine()
    plan = prepare(config, machine)
    with contextlib.ExitStack() as undo:
        for left in reversed(range(CHOICES)):
            with gpu_leases.choosing():
                now = msgspec.structs.replace(machine, gpus=gpu_leases.with_leases(machine.gpus))
                taken = {gpu.uuid for gpu, was in zip(now.gpus, machine.gpus, strict=True) if gpu.leases != was.leases}
                if plan.config.launcher != "local" or not taken & {*plan.config.device_ids} or not left:
                    run = undo.enter_context(
                        _removed_on_failure(make_directory(plan, runs_dir, machine, about or About()))
                    )
                    leases = gpu_leases.take(plan.config.device_ids, run.run_id)
                    undo.callback(gpu_leases.let_go, leases)
                    break
            # Somebody took one of its GPUs meanwhile.
            machine, plan = now, prepare(config, now)
        _start(run, plan.config, leases)
    return run


def start(run: RunDir, lock: int) -> None:
    """Starts a run whose directory is there, from its first step, under its lock. Raises LaunchError."""
    try:
        start_supervisor(run, journal_end(run.journal), (lock,), str(lock), "")
    except OSError as error:
        raise LaunchError(f"The run's supervisor cannot be started: {error.strerror or error}.") from error


def _start(
    run: RunDir,
    config: RunConfig | None = None,
    leases: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    try:
        if config is not None and config.launcher == "slurm":
            start_job(run, config)
        else:
            start_supervisor(run, passed=leases, environment=environment)
    except SlurmError as error:
        raise LaunchError(f"Slurm takes no job: {error}.") from error
    except OSError as error:
        raise LaunchError(f"The run's supervisor cannot be started: {error.strerror or error}.") from error


@contextlib.contextmanager
def _removed_on_failure(run: RunDir) -> Iterator[RunDir]:
    try:
        yield run
    except BaseException:
        # Ctrl-C, too.
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def record(
    runs_dir: Path,
    ranks: int,
    part: tuple[int, int] | None = None,
    launched: RunDir | None = None,
    number: int = 1,
    *,
    named: bool = False,
    others: int | None = None,
    earlier: RunDir | None = None,
) -> RunDir:
    """Starts to record the program that calls this, whose ranks somebody else has started; returns its directory.

    `ranks` are those of this machine, and `part` says which of several nodes that is; or they are those of all nodes,
    of which so many `others` are to join. Of a script that `tuiapp run` has started, `launched`, it is the `number`-th
    run, and `named` by the script or else after the launched one. It goes on with an `earlier` run, which has ended.
    Raises LaunchError if the directory cannot be written, or the supervisor does not start.
    """
    machine = inspect_machine()
    wanted = os.environ.get(MIRROR_VARIABLE, OFF)
    try:
        fault = mirror_fault(str(OPTIONS["mirror"].check(wanted)))
    except ConfigError as error:
        fault = str(error)
    if fault:
        print(f"tuiapp: {MIRROR_VARIABLE}: {fault}", file=sys.stderr)
    config = RunConfig(
        mirror=OFF if fault else place_mirror(wanted),
        backend="script",
        script=this_program(),
        arguments=printable(shlex.join(sys.argv[1:])),
        python=printable(sys.executable),
        working_directory=printable(working_directory() or "/"),
        platform="cuda" if machine.gpus else "cpu",
        devices=ranks,
        network=os.environ.get(NETWORK_VARIABLE, "" if launched is None else read_plan(launched.plan).config.network),
    )
    plan = Plan(config=config, facts=None, processes=0, part=part, others=others, steps_per_epoch=0, total_steps=0)
    if earlier is not None:
        go_on(earlier, plan, apart())
        return earlier
    about = _about_further(launched, number, named=named) if launched is not None else About()
    with _removed_on_failure(make_directory(plan, runs_dir, machine, about)) as run:
        _start(run, environment=apart())
    return run


def this_program() -> str:
    """Returns the script that calls this, as the configuration of its run names it."""
    program = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    return printable(os.path.abspath(program) if os.path.exists(program) else program)


def _about_further(launched: RunDir, number: int, *, named: bool) -> About:
    first, known_as = read_about(launched)[0], run_name(launched)
    return About(
        name=f"{known_as[: MAX_NAME_CHARACTERS - 10]} {number}" if known_as and not named else "",
        tags=first.tags,
        group=first.group,
        note=f"Run {number} of the script that was launched as {launched.run_id}.",
    )
