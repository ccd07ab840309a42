"""What a new row of the catalog reaches without another line: the plan, the command line, the form and the handbook."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.kit import ROOT

pytestmark = pytest.mark.nightly


def test_a_new_backend_is_a_row(tmp_path: Path) -> None:
    """In a process of its own: options are made of the catalog when they are imported."""
    program = """
        import asyncio, sys
        from pathlib import Path
        from dataclasses import replace
        from tuiapp.trainers.config import catalog

        catalog.BACKENDS["fake"] = replace(catalog.BACKENDS["torch-ddp"], name="fake", max_cpu_devices=1)

        from tests.manual import configuration
        from tests.kit.configure_app import Launches, type_into, until
        from tuiapp.trainers.config.machine import Machine
        from tuiapp.trainers.config.options import ConfigError
        from tuiapp.trainers.config.plan import make_plan
        from tuiapp.trainers.config.run_config import RunConfig
        from tuiapp.app import TuiApp
        from tuiapp.cli import main

        MACHINE = Machine(cpu_cores=2, memory_total_bytes=8 << 30)
        plan = make_plan(RunConfig(backend="fake", platform="cpu", devices=1))
        assert (plan.config.backend, plan.processes) == ("fake", 1)
        assert "mxnet-gluon, script, fake" in configuration()
        assert main(["presets", "save", "mine", "--set", "backend=fake", "--set", "devices=1"]) == 0
        # What the row says of it is checked.
        two = ["--set", "backend=fake", "--set", "devices=2", "--set", "platform=cpu"]
        assert main(["presets", "save", "wrong", *two]) == 2

        async def takes_it_in_the_form():
            launched = Launches()
            app = TuiApp(runs_dir=Path(sys.argv[1]), machine=MACHINE, launcher=launched)
            async with app.run_test(size=(120, 40)) as pilot:
                await type_into(pilot, "backend", "fake")
                await type_into(pilot, "platform", "cpu")
                await type_into(pilot, "devices", "1")
                await pilot.press("ctrl+r")
                await until(pilot, lambda: bool(launched.configs))
            return launched.configs[0].backend

        assert asyncio.run(takes_it_in_the_form()) == "fake"
        print("all is well")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.endswith("all is well\n"), done.stderr
