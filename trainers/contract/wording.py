"""Events in plain words, the same in the journal, on screen and on the command line."""

from __future__ import annotations

import re

from trainers.contract.events import RankFailed

_HINTS = {
    "SIGKILL": " — the kernel's out-of-memory killer?",
    "SIGSEGV": " — a crash in native code; its stacks are in stderr.log",
    "SIGBUS": " — is /dev/shm, or the disk under a memory-mapped file, full?",
    "SIGABRT": " — native code aborted; see stderr.log",
}

_NO_MEMORY = re.compile(r"MemoryError|OutOfMemoryError|RESOURCE_EXHAUSTED|out of memory", re.IGNORECASE)

MAX_ERROR_CHARACTERS = 300


def describe_failure(failure: RankFailed) -> str:
    """How a rank ended, in one sentence of bounded length; may quote the rank's exception."""
    where = f" at step {failure.step:,}" if failure.step else " before its first step" if failure.step == 0 else ""
    if failure.signal:
        hint = f" — {failure.hint}" if failure.hint else _HINTS.get(failure.signal, "")
        return f"rank {failure.rank} was killed by {failure.signal}{where}{hint}"
    if failure.lost:
        return f"{failure.error}; its ranks had come to step {failure.step:,}" if failure.step else failure.error
    if said := _what_it_said(failure.error):
        advice = " — a smaller global_batch_size needs less memory" if _NO_MEMORY.search(said) else ""
        return f"rank {failure.rank} failed{where}: {said}{advice}"
    left = f"rank {failure.rank} exited with code {failure.exit_code}{where}"
    # As of argparse, or of sys.exit with a text.
    last = failure.last_lines[-1].strip()[:MAX_ERROR_CHARACTERS] if failure.last_lines else ""
    return f"{left}; the last line of its stderr: {last}" if last else f"{left}, without saying why"


def _what_it_said(error: str) -> str:
    # A SyntaxError's own line comes after the place it points at.
    lines = [line for line in error.splitlines() if line.strip() and not line.startswith((" ", "File "))]
    return lines[0][:MAX_ERROR_CHARACTERS] if lines else ""


def describe_ranks(numbers: list[int]) -> str:
    """`rank 1`, `ranks 0, 2 and 3`; beyond eight the rest is counted."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = numbers[:8]
    if more := len(numbers) - len(shown):
        return f"ranks {', '.join(map(str, shown))} and {more} more"
    return f"ranks {', '.join(map(str, shown[:-1]))} and {shown[-1]}"
