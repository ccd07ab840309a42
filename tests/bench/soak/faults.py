"""What goes wrong in a soak's runs, and who does it."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pexpect
import psutil

from tests.kit.harness import Watched
from tests.kit.mxnet_environment import interpreter_of
from tests.kit.nodes import agent
from tests.kit.terminal import GONE_S, end
from tests.processes.conftest import FAULTS as FAULT_FILES
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, Metrics, StopRequested
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.launch import launch, resume

REAL = ("torch-ddp", "torch-dp", "jax-sharding", "jax-pmap", "keras-jax", "keras-torch", "mxnet-gluon", "script")
SCRIPT = Path(__file__).with_name("script.py")
ON_NODES = ("torch-ddp", "jax-sharding", "jax-pmap", "keras-jax", "keras-torch")
NODES_SHARE = 0.3
"""Of the runs that can have two nodes, those that do."""
OF_NODES = ("agent killed", "suspended agent")
INSIDE = ("raise", "exit", "segv", "memory", "child")
"""Done in a rank by `sitecustomize`, which reaches only this interpreter's built-in trainers."""
NOT_OF_SCRIPTS = (*INSIDE, "disk full", "supervisor killed, reaper too")
"""The script makes no checkpoint; and nobody ends a user's processes once both that watch them are gone."""
AGENT_GONE_S = 30.0
END_S = 120.0
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@dataclass(frozen=True)
class Plan:
    """One run of a soak."""

    fault: str
    fake: bool
    config: RunConfig
    rank: int
    step: int
    seconds: float

    def __str__(self) -> str:
        backend = "fake" if self.fake else self.config.backend
        nodes = f" on {self.config.nodes} nodes" if self.config.nodes > 1 else ""
        return f"{self.fault} · {backend} × {self.config.devices}{nodes} · rank {self.rank} step {self.step}"


@dataclass
class Outcome:
    """What came of it."""

    run: Watched
    expected: tuple[str, ...]
    """The statuses that are right."""
    killed_supervisor: bool = False
    killed_agent: bool = False
    witness: Path = field(default_factory=Path)


Fault = Callable[[Plan, Watched], tuple[str, ...]]


def choose(chance: random.Random, quick_share: float, fault: str | None = None) -> Plan:
    """The next run."""
    fake = chance.random() < quick_share
    name = fault or chance.choice(sorted(FAULTS))
    backend = "torch-ddp" if fake else chance.choice(REAL)
    if name in (NOT_OF_SCRIPTS if backend == "script" else INSIDE if interpreter_of(backend) else ()):
        backend = "torch-ddp"
    devices = 1 if backend == "torch-dp" else chance.choice((2, 2, 3, 4) if fake else (2,))
    ends = name in ("nothing", "suspended supervisor", "suspended agent", "dashboard killed")
    on_two = backend in ON_NODES and devices % 2 == 0 and chance.random() < NODES_SHARE
    if name in OF_NODES:
        fake, backend, devices, on_two = True, "torch-ddp", 2, True
    processes = devices if backend in ("torch-ddp", "keras-torch", "script") else 1 + on_two
    config = RunConfig(
        launcher="join" if on_two else "local",
        nodes=2 if on_two else 1,
        network="lo" if on_two else "",
        python=interpreter_of(backend),
        backend=backend,
        model="mlp",
        platform="cpu",
        devices=devices,
        epochs=1000,
        checkpoint_every=1,
        global_batch_size=48,
        max_steps=300 if ends else 0,
        seed=chance.randrange(99),
    )
    if backend == "script":
        steps = config.max_steps or 1_000_000
        config = RunConfig(backend=backend, script=str(SCRIPT), arguments=str(steps), platform="cpu", devices=devices)
    return Plan(name, fake, config, chance.randrange(processes), chance.randrange(1, 120), chance.uniform(0.2, 2.0))


def carry_out(plan: Plan, runs_dir: Path) -> Outcome:
    """Launch a run, do to it what the plan says, and wait for its end."""
    witness = runs_dir.with_name(f"{runs_dir.name}-witness")
    witness.mkdir()
    path = os.pathsep.join(filter(None, [str(FAULT_FILES), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "TUIAPP_TEST_WITNESS": str(witness)}
    if plan.fake:
        environment |= {"TUIAPP_TEST_BACKEND": "fake", "TUIAPP_TEST_STEP_S": "0.003"}
    if plan.fault in INSIDE:
        environment["TUIAPP_TEST_FAULT"] = f"{plan.fault}:{plan.rank}:{plan.step}"
    with _environment(environment), contextlib.ExitStack() as held:
        run = Watched(launch(plan.config, runs_dir))
        try:
            other = held.enter_context(agent(run)) if plan.config.nodes > 1 else None
            expected = FAULTS[plan.fault](plan, run)
            killed = plan.fault.startswith("supervisor killed"), plan.fault == "agent killed"
            outcome = Outcome(run, expected, *killed, witness)
            _wait_end(outcome)
            if other is not None:
                other.wait(AGENT_GONE_S)
        except BaseException:
            for process in run.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            raise
    return outcome


def _wait_end(outcome: Outcome) -> None:
    """Wait for the run's end, as long as it gets on."""
    run, step, deadline = outcome.run, -1, 0.0
    while run.run.is_live():
        if (last := max((event.last_step for event in run.reports()), default=0)) > step:
            step, deadline = last, time.monotonic() + END_S
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _is_further(rank: int, last: int, event: Metrics) -> bool:
    return event.rank == rank and event.last_step > last


def _reach(step: int, run: Watched) -> None:
    """Waits until every rank has reported a step, as long as each gets on: a script's entries have no step time."""
    for rank in range(run.started.world_size):
        last = 0
        while last < step:
            further = partial(_is_further, rank, last)
            last = run.wait(Metrics, further, END_S).last_step


def _nothing(_: Plan, run: Watched) -> tuple[str, ...]:
    _reach(1, run)
    return ("completed",)


def _kill_rank(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.pid(plan.rank), signal.SIGKILL)
    return ("failed",)


def _kill_while_another_is_stopped(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.pid(0), signal.SIGSTOP)
    time.sleep(plan.seconds / 4)
    os.kill(run.pid(plan.rank), signal.SIGKILL)
    return ("failed",)


def _kill_supervisor(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.started.pid, signal.SIGKILL)
    return ("lost",)


def _kill_supervisor_and_reaper(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    for reaper in run.processes("tuiapp.trainers.run.reaper"):
        reaper.kill()
    os.kill(run.started.pid, signal.SIGKILL)
    return _resume(plan, run)


def _suspend_and_kill_supervisor(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.started.pid, signal.SIGSTOP)
    time.sleep(plan.seconds)
    os.kill(run.started.pid, signal.SIGKILL)
    return _resume(plan, run)


def _resume(plan: Plan, run: Watched) -> tuple[str, ...]:
    """Go on with a run that was lost, to some steps beyond what its ranks did on their own."""
    run.wait_gone()
    if not (saved := list_checkpoints(run.run.checkpoints)[0]):
        return ("lost",)
    alone = {"launcher": "local", "nodes": 1, "network": ""}
    resume(run.run, msgspec.structs.replace(plan.config, max_steps=saved[0].manifest.step + 40, **alone))
    return ("completed",)


def _suspend_supervisor(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.started.pid, signal.SIGSTOP)
    time.sleep(plan.seconds)
    os.kill(run.started.pid, signal.SIGCONT)
    return ("completed",)


def _its_own(plan: Plan, run: Watched) -> tuple[str, ...]:
    return ("failed",)


def _child(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step + 5, run)
    sidecars.send_command(run.run.commands, "stop-now")
    return ("stopped",)


def _stop(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    sidecars.send_command(run.run.commands, "stop")
    return ("stopped",)


def _stop_twice(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    os.kill(run.started.pid, signal.SIGTERM)
    run.wait(StopRequested)
    sidecars.send_command(run.run.commands, "stop-now")
    return ("stopped",)


def _stop_before_the_start(plan: Plan, run: Watched) -> tuple[str, ...]:
    sidecars.send_command(run.run.commands, "stop" if plan.step % 2 else "stop-now")
    return ("stopped",)


def _full_disk(plan: Plan, run: Watched) -> tuple[str, ...]:
    """Neither the journal nor a checkpoint can grow for a while; then there is room again."""
    _reach(plan.step, run)
    pids = {run.started.pid, run.pid(0)}
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (run.run.journal.stat().st_size + 100, hard))
    sidecars.send_command(run.run.commands, "checkpoint")
    time.sleep(plan.seconds)
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
    time.sleep(0.5)
    sidecars.send_command(run.run.commands, "stop")
    run.wait(Checkpoint, seconds=60)
    return ("stopped",)


def _kill_dashboard(plan: Plan, run: Watched) -> tuple[str, ...]:
    command = [*TUIAPP, "attach", run.run.run_id, "--runs-dir", str(run.run.path.parent)]
    dashboard = pexpect.spawn(command[0], command[1:], dimensions=(40, 120), timeout=30)
    with contextlib.suppress(pexpect.TIMEOUT):
        dashboard.expect("loss")
    dashboard.kill(signal.SIGKILL if plan.step % 2 else signal.SIGHUP)
    # After a SIGHUP it ends by itself, after giving its terminal back.
    deadline = time.monotonic() + GONE_S
    while dashboard.isalive() and time.monotonic() < deadline:
        time.sleep(0.02)
    hung = dashboard.isalive()
    end(dashboard)
    assert not hung, f"the dashboard is still there {GONE_S:.0f} s after its signal"
    listing = [*TUIAPP, "runs", "--runs-dir", str(run.run.path.parent)]
    subprocess.run(listing, check=True, capture_output=True, timeout=60)
    return ("completed",)


def _agent() -> psutil.Process:
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess):
            if "tuiapp.trainers.run.node" in one.cmdline():
                return one
    raise AssertionError("there is no agent")


def _kill_agent(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    _agent().kill()
    return ("failed",)


def _suspend_agent(plan: Plan, run: Watched) -> tuple[str, ...]:
    _reach(plan.step, run)
    _agent().suspend()
    # Some are named, and back again.
    time.sleep(4 * plan.seconds)
    _agent().resume()
    return ("completed",)


FAULTS: dict[str, Fault] = {
    "nothing": _nothing,
    "rank killed": _kill_rank,
    "rank killed, another stopped": _kill_while_another_is_stopped,
    "supervisor killed": _kill_supervisor,
    "supervisor killed, reaper too": _kill_supervisor_and_reaper,
    "supervisor killed, suspended before": _suspend_and_kill_supervisor,
    "suspended supervisor": _suspend_supervisor,
    "raise": _its_own,
    "exit": _its_own,
    "segv": _its_own,
    "memory": _its_own,
    "child": _child,
    "stop": _stop,
    "stop twice": _stop_twice,
    "stop before the start": _stop_before_the_start,
    "disk full": _full_disk,
    "dashboard killed": _kill_dashboard,
    "agent killed": _kill_agent,
    "suspended agent": _suspend_agent,
}
