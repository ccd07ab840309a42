"""Every verb over runs and presets whose every text is hostile: nothing that is more than characters comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.kit.command_line import Command
from tests.kit.hostile import HOSTILE, RUN_IDS, harm_in, write_presets, write_runs

pytestmark = pytest.mark.nightly

VERBS = [
    ["runs"],
    ["runs", "--json"],
    *([verb, run, *more] for verb in ("show",) for run in RUN_IDS for more in ([], ["--json"])),
    ["compare", *RUN_IDS],
    ["compare", *RUN_IDS, "--json"],
    ["compare", *RUN_IDS[:2]],
    *(["export", run, "--format", form] for run in RUN_IDS for form in ("csv", "jsonl")),
    *(["run", "--resume", run] for run in RUN_IDS),
    *(["run", "--like", run, "--set", f"optimizer={HOSTILE}"] for run in RUN_IDS),
    *(["stop", run] for run in RUN_IDS),
    *(["checkpoint", run] for run in RUN_IDS),
    ["attach", RUN_IDS[0]],
    ["replay", RUN_IDS[0]],
    *([verb, HOSTILE] for verb in ("show", "attach", "replay", "stop", "checkpoint", "export", "run")),
    ["rm", "--yes", HOSTILE],
    ["compare", HOSTILE, HOSTILE],
    ["run", "--set", f"{HOSTILE}=1"],
    ["run", "--set", HOSTILE],
    ["run", "--set", f"dataset=npz:/{HOSTILE}"],
    ["run", f"/{HOSTILE}.toml"],
    ["presets"],
    ["presets", "list", "--json"],
    *(["presets", "show", name] for name in ("described", "wrong", HOSTILE)),
    ["presets", "save", HOSTILE],
    ["presets", "save", "fine", "--description", HOSTILE],
    ["presets", "rename", "described", HOSTILE],
    ["presets", "rename", HOSTILE, "fine"],
    ["presets", "delete", HOSTILE],
    ["presets", "path"],
    ["settings"],
    ["doctor"],
    ["doctor", "--json"],
    ["--runs-dir", HOSTILE, "runs"],
    ["no-such-verb" + HOSTILE],
    ["run", "--no-such-option" + HOSTILE],
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs' directory, whose name is hostile as well; presets; and an environment that names such places."""
    runs_dir = tmp_path / "\x1b]0;HACKED\x07[red]runs"
    write_runs(runs_dir)
    write_presets()
    monkeypatch.setenv("TUIAPP_RUNS_DIR", str(runs_dir))
    monkeypatch.setenv("TUIAPP_DATA_DIR", f"/{HOSTILE}")
    return runs_dir


def test_every_verb(tuiapp: Command, places: Path) -> None:
    # A run's own directory may have any name.
    named = places / "\x1b]0;HACKED\x07[red]x\x9b1m"
    shutil.copytree(places / RUN_IDS[0], named)
    by_name = [[verb, str(named)] for verb in ("show", "stop", "checkpoint", "attach", "replay", "export")]
    by_name += [["run", "--resume", str(named)], ["compare", str(named), RUN_IDS[1]], ["rm", "--yes", str(named)]]
    harmful = []
    for words in [*VERBS, *by_name]:
        done = tuiapp(*words)
        harmful += [(words, harm) for text in (done.out, done.err) if (harm := harm_in(text))]
        if "--json" in words and done.code == 0:
            json.loads(done.out)
    assert not harmful, "\n".join(map(str, harmful))
    assert tuiapp("rm", "--yes", *RUN_IDS).code == 0
    print(f"\n{len(VERBS) + len(by_name)} commands, nothing but characters")
