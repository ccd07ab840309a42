"""Compiles training steps for H100s without a GPU: `python -m tests.bench.xla`, by hand, an hour; see README.md.

JAX with its compiler for GPUs, 5 GB, is installed on the first call, into an environment of its own in the cache
directory. Prints a row of a Markdown table for each program, and below it what is wrong. Exits with 1 if anything is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tests.bench.xla.programs import Program, configs, faults
from tuiapp.trainers.config.files import user_cache
from tuiapp.trainers.config.run_config import RunConfig

ROOT = Path(__file__).resolve().parents[3]
HEAD = """| Program | Seconds | Estimated, MB | Compiled, MB | | Exchanged, MB |
| --- | --- | --- | --- | --- | --- |"""


def main() -> int:
    """Compiles the programs; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.xla", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the programs, compile none")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="such as 'jax-pmap*', 'keras-jax net 4*'")
    parser.add_argument("--python", default=sys.executable, help="that makes the environment (default: this one)")
    parser.add_argument("--texts", metavar="DIR", type=Path, help="write the compiled programs to it")
    options = parser.parse_args()
    chosen = {name: config for name, config in configs().items() if fnmatchcase(name, options.only)}
    if options.list:
        print(*chosen, sep="\n")
        return 0
    if options.texts:
        options.texts.mkdir(parents=True, exist_ok=True)
    python, wrong = environment(options.python), []
    print(HEAD, flush=True)
    for name, config in chosen.items():
        text = options.texts and str(options.texts.resolve() / f"{name.replace(' ', '-')}.txt")
        try:
            program = compiled(python, config, text)
        except subprocess.CalledProcessError as error:
            wrong.append(f"{name}: it does not compile\n{error.stderr}")
            continue
        print(row(name, program), flush=True)
        wrong += [f"{name}: {fault}" for fault in faults(config, program)]
    print("", *wrong, f"{len(chosen)} programs, {len(wrong)} faults", sep="\n")
    return 1 if wrong else 0


def environment(python: str) -> str:
    """The interpreter of an environment with JAX for GPUs, which is made if there is none."""
    directory = user_cache() / "xla"
    made = directory / "made"
    if not made.exists():
        subprocess.run([python, "-m", "venv", "--clear", directory], check=True)
        pip = [str(directory / "bin" / "pip"), "install", "-q"]
        subprocess.run([*pip, "-e", f"{ROOT}[jax,keras]", "jax[cuda13]"], check=True)
        made.touch()
    return str(directory / "bin" / "python")


def compiled(python: str, config: RunConfig, text: str | None) -> Program:
    """Compiles one, in a process of its own; raises CalledProcessError."""
    words = [msgspec.json.encode(config).decode(), *([text] if text else [])]
    command = ["nice", python, "-m", "tests.bench.xla.program", *words]
    # JAX's log is of the driver that is missing.
    done = subprocess.run(command, cwd=ROOT, env=os.environ, check=True, capture_output=True, text=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Program)


def row(name: str, program: Program) -> str:
    """Its row of the table."""
    estimated, made = program.estimated / 1e6, program.compiled / 1e6
    parts = [(part, *call) for part, calls in program.exchanged.items() for call in calls.items()]
    exchanged = ", ".join(f"{part} {kind} {count / 1e6:,.2f}" for part, kind, count in parts) or "–"
    figures = f"{program.seconds:.0f} | {estimated:,.1f} | {made:,.1f} | {estimated / made:.2f}×"
    return f"| `{name}` | {figures} | {exchanged} |"


if __name__ == "__main__":
    sys.exit(main())
