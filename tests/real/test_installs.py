"""Every way to install the program: it has all that it needs, trains elsewhere, and takes no other package's name."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.installs import KINDS, Built, build, install
from tuiapp.library import manual

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_all_that_is_needed_beside_the_code(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    pages = {f"tuiapp/manual/{topic}.md" for topic in manual.TOPICS}
    presets = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/library/builtin_presets").glob("*.toml")}
    digits = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/trainers/sources").glob("*.npz")}
    assert presets
    assert digits
    assert pages | presets | digits <= names
    assert {name.partition("/")[0] for name in names} == {"tuiapp", f"{built.sdist.name}.dist-info"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_elsewhere(kind: str, built: Built, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    installed = install(kind, tmp_path / "venv", built)
    told = installed.run("-c", "import tuiapp, tuiapp.trainers as t; print(tuiapp.__file__, t.__file__)", cwd=elsewhere)
    assert told.stdout.split() == [str(installed.package / name) for name in ("__init__.py", "trainers/__init__.py")]
    # Of the trees, PYTHONPATH names the directory that has them.
    for name in ("trainers", "tests") if kind in ("wheel", "editable") else ():
        assert (
            f"ModuleNotFoundError: No module named '{name}'"
            in installed.run("-c", f"import {name}", cwd=elsewhere).stderr
        )
    run = ("-m", "tuiapp", "run", "quickstart", "--set", "epochs=1", "--set", "devices=1", "--json")
    done = installed.run(*run, cwd=elsewhere, variables={"TUIAPP_RUNS_DIR": str(tmp_path / "runs")})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["steps"]) == ("completed", 29)
