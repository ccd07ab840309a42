"""A real Slurm with two nodes on this machine, for tests; and two machines, as network namespaces.

Both need root, and programs of Debian's packages: slurmctld, slurmd, slurm-client and munge; iproute2.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.kit.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
NODES = 2
NOBODY = "02:00:00:00:00:fe"
"""An Ethernet address that no machine has."""
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _configuration(home: Path) -> str:
    """A small cluster: no accounting, no control groups, jobs end soon."""
    ports = [free_port() for _ in range(NODES)]
    lines = {
        "ClusterName": "tests",
        "SlurmctldHost": f"{socket.gethostname()}(127.0.0.1)",
        "SlurmctldPort": free_port(),
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={home}/munge.socket",
        "StateSaveLocation": f"{home}/state",
        "SlurmdSpoolDir": f"{home}/spool.%n",
        "SlurmctldPidFile": f"{home}/slurmctld.pid",
        "SlurmdPidFile": f"{home}/slurmd.%n.pid",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "SchedulerParameters": "sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": 2,
        "KillWait": 20,
        "SlurmdTimeout": 10,
        "JobRequeue": 1,
        "GresTypes": "gpu",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "PreemptExemptTime": 0,
    }
    nodes = [
        f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} "
        "CPUs=4 RealMemory=1000 Gres=gpu:2"
        for number, port in enumerate(ports)
    ]
    # A job in `urgent` preempts those of `debug`.
    partitions = [
        f"PartitionName={name} Nodes=n[0-{NODES - 1}] MaxTime=INFINITE State=UP {words}"
        for name, words in (("debug", "Default=YES PriorityTier=1 GraceTime=20"), ("urgent", "PriorityTier=9"))
    ]
    return "\n".join([*(f"{name}={value}" for name, value in lines.items()), *nodes, *partitions, ""])


@contextmanager
def slurm(hosts: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Starts the cluster; gives the environment in which Slurm's commands find it. `hosts` are what its nodes say."""
    if os.getuid():
        pytest.skip("a Slurm of its own needs root")
    if missing := [name for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)")
    # munged wants its socket where everybody may reach it.
    with TemporaryDirectory(prefix="tuiapp-slurm-", ignore_cleanup_errors=True) as directory:
        yield from _cluster(Path(directory), hosts)


def _cluster(home: Path, hosts: Sequence[str]) -> Iterator[dict[str, str]]:
    home.chmod(0o755)
    for name in ("state", *(f"spool.n{number}" for number in range(NODES))):
        (home / name).mkdir()
    key = home / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    (home / "slurm.conf").write_text(_configuration(home))
    for number in range(2):
        # /dev/null again: Slurm counts devices, and opens none.
        os.mknod(home / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (home / "gres.conf").write_text(f"NodeName=n[0-{NODES - 1}] Name=gpu File={home}/gpu[0-1]\n")
    # In a container slurmd finds no version by itself, and ends.
    (home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    # Without this every command asks the name server for a controller.
    environment = {**os.environ, "PATH": SEARCHED, "SLURM_CONF": str(home / "slurm.conf")}
    munge = [f"--{name}={home}/{file}" for name, file in MUNGE_FILES.items()]
    with ExitStack() as daemons:
        daemons.enter_context(_daemon(["munged", "--foreground", *munge], home / "munged.out", environment))
        wait_until((home / "munge.socket").exists)
        daemons.enter_context(_daemon(["slurmctld", "-D"], home / "slurmctld.out", environment))
        for number in range(NODES):
            command = ["slurmd", "-D", "-N", f"n{number}"]
            if hosts:
                renamed = f"hostname {hosts[number]} && exec {shlex.join(command)}"
                command = ["unshare", "--uts", "sh", "-c", renamed]
            daemons.enter_context(_daemon(command, home / f"slurmd.n{number}.out", environment))
        daemons.callback(cancel_all, environment)
        wait_until(lambda: _idle(environment) == NODES)
        yield environment


MUNGE_FILES = {
    "key-file": "munge.key",
    "socket": "munge.socket",
    "pid-file": "munged.pid",
    "log-file": "munged.log",
    "seed-file": "munged.seed",
}


@contextmanager
def _daemon(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    found = shutil.which(command[0], path=SEARCHED)
    assert found is not None
    with log.open("ab") as file:
        started = subprocess.Popen([found, *command[1:]], stdout=file, stderr=file, env=environment)
    try:
        yield
    finally:
        # What it has started, too: a step of a job outlives its slurmd.
        family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        for process in family[1:]:
            if process.is_running():
                process.kill()


def _idle(environment: dict[str, str]) -> int:
    done = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "debug", "-o", "%t"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stdout.split().count("idle")


def cancel_all(environment: dict[str, str]) -> None:
    """Cancels all jobs, and waits until they have ended."""
    subprocess.run(["scancel", "--user=root"], env=environment, check=False, timeout=20)
    wait_until(lambda: not jobs(environment))


def jobs(environment: dict[str, str]) -> list[str]:
    """The ids of all jobs that have not ended."""
    return _squeue(environment, "%i").split()


def start_now(job: str, environment: dict[str, str]) -> None:
    """Starts a job that Slurm has put back into its queue, where it waits two minutes.

    Not within the second in which it was ended: a node would take its new credential for the old, which is revoked.
    """
    subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now+3"], env=environment, check=True, timeout=20)


def _squeue(environment: dict[str, str], form: str, *words: str) -> str:
    command = ["squeue", "-h", "-o", form, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout


class Machines:
    """Network namespaces, joined by a bridge; each with an address, and a cable that can be pulled out."""

    def __init__(self, name: str, network: str, count: int) -> None:
        self._name, self._network, self._count = name, network, count

    def address(self, number: int) -> str:
        """Of a machine."""
        return f"{self._network}.{number + 1}"

    def command(self, number: int, *words: str) -> list[str]:
        """The command that runs another one on a machine."""
        return ["ip", "netns", "exec", f"{self._name}{number}", *words]

    def cut(self, number: int) -> None:
        """Pulls a machine's cable out."""
        ip("link", "set", f"{self._name}v{number}", "down")

    def heal(self, number: int) -> None:
        """Plugs it in again."""
        ip("link", "set", f"{self._name}v{number}", "up")

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Loses what one machine sends to another: it goes to an address that nobody has."""
        ip("-n", f"{self._name}{sender}", "neigh", "replace", self.address(receiver), "lladdr", NOBODY, "dev", "eth0",
           "nud", "permanent")  # fmt: skip

    def heal_one_way(self, sender: int, receiver: int) -> None:
        """Delivers it again."""
        ip("-n", f"{self._name}{sender}", "neigh", "del", self.address(receiver), "dev", "eth0")

    def up(self) -> None:
        """Makes all."""
        bridge = f"{self._name}br"
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number in range(self._count):
            space, end = f"{self._name}{number}", f"{self._name}v{number}"
            ip("netns", "add", space)
            ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", space, "link", "set", link, "up")
            ip("link", "set", end, "master", bridge, "up")

    def down(self) -> None:
        """Removes all."""
        for number in range(self._count):
            ip("link", "del", f"{self._name}v{number}", check=False)
            ip("netns", "del", f"{self._name}{number}", check=False)
        ip("link", "del", f"{self._name}br", check=False)


def ip(*words: str, check: bool = True) -> None:
    """One call of iproute2's."""
    subprocess.run(["ip", *words], check=check, capture_output=True, timeout=20)


@contextmanager
def machines(count: int = NODES) -> Iterator[Machines]:
    """Some of them, for the time of a test."""
    if os.getuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    # Each of pytest-xdist's processes has its own.
    number = os.getpid() % 200
    made = Machines(f"t{number:03d}", f"10.91.{number}", count)
    try:
        made.up()
    except subprocess.CalledProcessError as error:
        made.down()
        pytest.skip(f"this machine gives no network namespaces: {error.stderr.decode().strip()}")
    try:
        yield made
    finally:
        made.down()
