"""Keys and passwords of a run stay in its directory: what is made to be shared has them masked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.library.presets import save_preset
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import Facts
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, write_about

SECRETS = ("s3cr3t-of-env", "s3cr3t-of-argument", "s3cr3t-of-config", "s3cr3t-of-command")
SCRIPT = RunConfig(
    backend="script",
    script="/x/train.py",
    platform="cpu",
    environment=f"WANDB_MODE={SECRETS[0]}",
    arguments=f"--api-key {SECRETS[1]} --lr 0.1",
)


GROUP = "of-secrets"


@pytest.fixture
def recorded(runs_dir: Path) -> str:
    begun, *rest = own.completed(config=to_toml_values(SCRIPT))
    run = record(runs_dir, own.RUN_ID, [begun, Facts(config={"hub_token": SECRETS[2]}, **h.at(1)), *rest], SCRIPT)
    line = ["tuiapp", "run", "train.py", "--set", f"environment=A={SECRETS[3]}", "--", "--password", SECRETS[3]]
    run.environment.write_text(json.dumps({"host": "here", "command_line": line}))
    return own.RUN_ID


@pytest.fixture
def two(recorded: str, runs_dir: Path) -> list[str]:
    """Two runs of a group, whose secrets differ."""
    other = f"{own.RUN_ID[:-4]}0002"
    config = replace(SCRIPT, environment=f"WANDB_MODE={SECRETS[3]}", arguments=f"--api-key {SECRETS[3]} --lr 0.2")
    begun, *rest = own.completed(config=to_toml_values(config))
    facts = Facts(config={"hub_token": SECRETS[3], "url": f"postgres://ada:{SECRETS[3]}@x"}, **h.at(1))
    record(runs_dir, other, [begun, facts, *rest], config)
    for run_id in (recorded, other):
        write_about(RunDir(runs_dir / run_id), About(group=GROUP))
    save_preset("with-secrets", config, "", overwrite=False)
    return [recorded, other]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "words",
    [
        ["runs", "--columns", "environment,arguments,hub_token,url"],
        ["runs", "--columns", "config.environment,config.hub_token", "--sort", "hub_token"],
        ["compare", GROUP],
        ["compare", own.RUN_ID, "--group", GROUP],
        ["study", "list"],
        ["study", "show", GROUP],
        ["study", "export", GROUP],
        ["metrics", own.RUN_ID],
        ["presets", "list"],
        ["queue", "list"],
    ],
)
def test_what_verbs_print(tuiapp: Command, two: list[str], words: list[str], as_json: list[str]) -> None:
    done = tuiapp(*words, *as_json)
    assert (done.code, told(done.out + done.err)) == (0, []), done.err


def test_secrets_that_differ_are_seen_to(tuiapp: Command, two: list[str]) -> None:
    differing = json.loads(tuiapp("compare", "--json", *two).out)["differing"]
    assert differing["hub_token"] == ["***", "***"]
    assert differing["environment"] == ["WANDB_MODE=***"] * 2
    assert differing["url"] == [None, "postgres://ada:***@x"]


def told(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def test_what_is_shared(tuiapp: Command, recorded: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for name in ("report.html", "report.md"):
        assert tuiapp("report", recorded, "-o", str(tmp_path / name)).code == 0
        text = (tmp_path / name).read_text()
        assert told(text) == []
        assert "--lr 0.1" in text
    assert tuiapp("export", recorded, "--format", "tensorboard", "-o", str(tmp_path / "board")).code == 0
    files = [path.read_bytes() for path in (tmp_path / "board").rglob("*tfevents*")]
    assert any(b"WANDB_MODE=***" in data for data in files)
    assert [secret for secret in SECRETS if any(secret.encode() in data for data in files)] == []
