"""Runs a command in a terminal of its own, waits until the dashboard stands, leaves it with Ctrl+Q.

`python3 .ci/in_terminal.py COMMAND…`; only the standard library, for it runs before anything is installed. Exit code 0
when the dashboard came up and the command ended with 0.
"""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

INSTALL_AND_OPEN_S = 900
LEAVE_S = 15


def main() -> int:
    """Run it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8")
        os.execvp(sys.argv[1], sys.argv[1:])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen, deadline, asked = b"", time.monotonic() + INSTALL_AND_OPEN_S, False
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
        if not asked and b"\x1b[?1049h" in seen and b"Learning rate" in seen:
            os.write(terminal, b"\x11")
            asked, deadline = True, time.monotonic() + LEAVE_S
    else:
        os.kill(pid, 9)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shell = seen.split(b"\x1b[?1049h")[0].decode(errors="replace")
    print(re.sub(r"[^\n]*\r(?!\n)", "", shell)[-3000:])
    print(f"dashboard {'came up' if asked else 'did not come up'}; exit code {code}")
    return 0 if asked and code == 0 else 1


sys.exit(main())
