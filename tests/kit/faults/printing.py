"""What a rank prints that no terminal would survive, or more of it than there is room for."""

import os
import threading


def at_step(kind: str, after: int) -> None:
    """Print what is to be printed.

    Args:
        kind: "talk" prints at each step, "babble" once and a word 200 steps later, "shout" all the time, as fast as it
            can: 1 GiB in lines of 4 KiB, half of it to stderr.
        after: Steps since the fault's own.
    """
    if kind == "talk" and after >= 0:
        print(f"step {after} " + "x" * 200)
    elif kind == "babble" and after == 0:
        _babble()
    elif kind == "babble" and after == 200:
        print("the babbling is over")
    elif kind == "shout" and after == 0:
        threading.Thread(target=_shout, daemon=True).start()


def _shout() -> None:
    data = (b"x" * 4095 + b"\n") * 64
    for number in range((1 << 30) // len(data)):
        os.write(1 + number % 2, data)


def _babble() -> None:
    pieces = [
        b"bad \xff\xfe\xc3( utf-8",
        b"".join(b"bar %d %%\r" % part for part in range(0, 101, 10)),
        b"\x1b]52;c;SEFDSw==\x07\x1b]0;HACKED\x07\x1b[2J\x1b[?1049l\x9b31m\x1bPHACKED\x1b\\ sequences",
        b"[red]markup[/] [/] [@click=app.quit]x[/] [",
        b"long " + b"x" * (10 << 20),
        *(b"line %d" % number for number in range(5000)),
    ]
    for piece in pieces:
        data = piece + b"\n"
        while data:
            data = data[os.write(1, data) :]
