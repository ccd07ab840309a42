"""What a new row of the catalog reaches without another line: the plan, the command line, the form and the handbook."""

from __future__ import annotations

import os
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


def test_a_new_source_of_data_is_a_row(tmp_path: Path) -> None:
    """A row and a module: what it says is checked, planned, listed and loaded."""
    (tmp_path / "numbers_source.py").write_text(
        textwrap.dedent("""
        import sys
        import numpy as np
        from tuiapp.trainers.sources.arrays import Arrays

        sys.modules["tuiapp.trainers.sources.numbers"] = sys.modules[__name__]

        def load(facts):
            count = facts.train_examples
            images, labels = np.zeros((count, 8, 8, 1), np.uint8), np.zeros(count, np.int64)
            return Arrays(images, labels, images, labels)
        """)
    )
    program = """
        import asyncio, sys
        from pathlib import Path
        from tuiapp.trainers.config import datasets
        from tuiapp.trainers.config.datasets import Dataset, DatasetError, Source

        def facts(value):
            name = Path(value.removeprefix("numbers:")).name
            if not name.isdigit():
                raise DatasetError(f"{value} is not a number.")
            count = int(name)
            return Dataset(value, "numbers", count, count, (8, 8, 1), 10)

        datasets.SOURCES["numbers:"] = Source("numbers:", "made of nothing", "/", "numbers", facts, facts)

        import numbers_source
        from tests.manual import configuration
        from tests.kit.configure_app import Launches, type_into, until
        from tuiapp.trainers.config.machine import Machine
        from tuiapp.trainers.config.plan import make_plan
        from tuiapp.trainers.config.run_config import RunConfig
        from tuiapp.trainers.sources.datasets import open_planned
        from tuiapp.app import TuiApp
        from tuiapp.cli import main

        plan = make_plan(RunConfig(dataset="numbers:96", model="mlp", platform="cpu", devices=1), facts("numbers:96"))
        assert (plan.steps_per_epoch, len(open_planned(plan).x_train)) == (2, 96)
        assert "numbers:PATH" in configuration()
        assert main(["presets", "save", "mine", "--set", "dataset=numbers:96"]) == 0

        async def takes_it_in_the_form():
            launched = Launches()
            app = TuiApp(
                runs_dir=Path(sys.argv[1]),
                machine=Machine(cpu_cores=2, memory_total_bytes=8 << 30),
                config=RunConfig(dataset="numbers:96", model="mlp", platform="cpu", devices=1),
                launcher=launched,
            )
            async with app.run_test(size=(120, 40)) as pilot:
                await type_into(pilot, "epochs", "3")
                await pilot.press("ctrl+r")
                await until(pilot, lambda: bool(launched.configs))
            return launched.configs[0].dataset

        assert asyncio.run(takes_it_in_the_form()).startswith("numbers:")
        print("all is well")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.endswith("all is well\n"), done.stderr
