"""A real sshd on the second of two machines, which the first knows as `node-b`; see `cluster.machines`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.kit.cluster import SEARCHED, Machines, machines
from tests.kit.waiting import wait_until

PORT = 2222
SERVER = """
ListenAddress {address}:{port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/authorized
PidFile none
StrictModes no
UsePAM no
"""
CLIENT = """
Host node-closed
  Port 9
Host node-stranger
  User nobody
Host node-empty
  IdentityFile {home}/empty
Host node-bare
  IdentityFile {home}/bare
Host node-old
  IdentityFile {home}/old
Host node-*
  HostName {address}
  Port {port}
  User root
  IdentityFile {home}/key
  UserKnownHostsFile {home}/known_hosts
"""


LACKING = {
    "empty": "export SSH_ORIGINAL_COMMAND=$(echo $SSH_ORIGINAL_COMMAND | sed s:/bin/python:/no-bin/python:)",
    "bare": "export SSH_ORIGINAL_COMMAND=$(echo $SSH_ORIGINAL_COMMAND | sed 's: -P : -P -S :')",
    "old": "export PYTHONPATH=$(dirname $0)/packages",
}
"""Key → what the commands of those who come with it find: no interpreter, one without tuiapp, one with another."""


@dataclass(frozen=True)
class Sshd:
    """Two machines, and the daemon on the second."""

    two: Machines
    home: Path
    process: psutil.Process

    def command(self, *words: str) -> list[str]:
        """The command that runs another one on the first machine, whose `/etc/ssh` leads to the second."""
        prepare = 'mount --bind "$0" /etc/ssh && exec "$@"'
        return self.two.command(0, "unshare", "--mount", "sh", "-c", prepare, str(self.home), *words)


@contextmanager
def sshd() -> Iterator[Sshd]:
    """Starts it; ended with all sessions afterwards."""
    server = shutil.which("sshd", path=SEARCHED)
    if server is None or shutil.which("ssh") is None:
        pytest.skip("not installed: sshd, ssh (Debian: openssh-server openssh-client)")
    with machines() as two, TemporaryDirectory(prefix="tuiapp-sshd-") as directory:
        home, address = Path(directory), two.address(1)
        for name in ("host_key", "key", *LACKING):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
        entries = [(home / "key.pub").read_text()]
        for name, change in LACKING.items():
            (home / f"{name}.sh").write_text(f"{change}\neval $SSH_ORIGINAL_COMMAND\n")
            entries.append(f'command="sh {home}/{name}.sh" {(home / name).with_suffix(".pub").read_text()}')
        (home / "authorized").write_text("".join(entries))
        other = home / "packages" / "tuiapp-0.0.1.dist-info"
        other.mkdir(parents=True)
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: tuiapp\nVersion: 0.0.1\n")
        (home / "known_hosts").write_text(f"[{address}]:{PORT} {(home / 'host_key.pub').read_text()}")
        values = {"home": home, "address": address, "port": PORT}
        (home / "sshd_config").write_text(SERVER.format_map(values))
        (home / "ssh_config").write_text(CLIENT.format_map(values))
        # Where no sshd runs as a service, the directory that it wants is missing.
        prepare = 'mount -t tmpfs none /run && mkdir /run/sshd && exec "$0" "$@"'
        within = "unshare", "--mount", "sh", "-c", prepare, server
        command = two.command(1, *within, "-D", "-e", "-f", str(home / "sshd_config"))
        with (home / "sshd.log").open("wb") as log:
            started = subprocess.Popen(command, stderr=log)
        try:
            wait_until(lambda: "Server listening" in (home / "sshd.log").read_text())
            yield Sshd(two, home, psutil.Process(started.pid))
        finally:
            family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
            for process in family:
                if process.is_running():
                    process.kill()
            started.wait()
