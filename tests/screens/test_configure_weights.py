"""Configure, driven by keys: the weights that a run begins with."""

from __future__ import annotations

import pytest

from tests.kit import histories
from tests.kit.configure_app import Launches, Start, field, screen, type_into, until
from tests.kit.recorded import record, record_checkpoint
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import default_runs_dir
from tuiapp.view.draft import examine, to_texts


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_that_resumes_no_longer_needs_them(machine: Machine, resumes: bool) -> None:
    config = RunConfig(platform="cpu", init_from="/gone/x.safetensors", freeze="conv*")
    draft = examine(to_texts(config), config, machine, resumes=resumes)
    assert list(draft.problems) == ([] if resumes else ["init_from"])
    assert draft.config == config


@pytest.mark.nightly
async def test_a_run_is_named_and_the_command_and_the_launch_have_its_directory(
    start: Start, launches: Launches
) -> None:
    run = record(default_runs_dir(), "20261120T000001-torch-ddp-net-0123", histories.completed())
    async with start() as pilot:
        await type_into(pilot, "init_from", "2026112")
        assert "has no checkpoint yet" in field(pilot, "init_from").problem
        record_checkpoint(run, 29)
        await type_into(pilot, "init_from", "nobody")
        assert "'nobody' is no run" in field(pilot, "init_from").problem
        await type_into(pilot, "init_from", "latest")
        await until(pilot, lambda: field(pilot, "init_from").problem == "")
        await type_into(pilot, "freeze", "conv*,bn*")
        assert screen(pilot).command == f"tuiapp run --set init_from={run.path} --set 'freeze=conv*,bn*'"
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert [(one.init_from, one.freeze) for one in launches.configs] == [(str(run.path), "conv*,bn*")]
