"""What a rank prints that no terminal would survive, or more of it than there is room for."""

import os


def at_step(kind: str, after: int) -> None:
    """Print what is to be printed.

    Args:
        kind: "talk" prints at each step, "babble" once and a word 200 steps later.
        after: Steps since the fault's own.
    """
    if kind == "talk" and after >= 0:
        print(f"step {after} " + "x" * 200)
    elif kind == "babble" and after == 0:
        _babble()
    elif kind == "babble" and after == 200:
        print("the babbling is over")


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
