"""Data sets that are downloaded, from a server of the test's own."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kit.data_server import TEST, TRAIN, DataServer, cifar_file, mnist_files, pack_idx, serving, sha256
from tuiapp.trainers.config.data_files import FILES, DataFile, DatasetError, cache_dir, where
from tuiapp.trainers.config.datasets import DATASETS, find_dataset
from tuiapp.trainers.sources import downloads
from tuiapp.trainers.sources.datasets import load

IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def server() -> Iterator[DataServer]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _small(server: DataServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data sets whose mirrors are /a and /b of the server, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE_S", 0)
    files = mnist_files()
    table = {"mnist": files, "cifar10": {"cifar-10-binary.tar.gz": cifar_file()}}
    for name, contents in table.items():
        facts = replace(DATASETS[name], train_examples=TRAIN, test_examples=TEST)
        monkeypatch.setitem(DATASETS, name, facts)
        monkeypatch.setitem(FILES, name, tuple(describe(server, file, data) for file, data in contents.items()))
        server.files |= {f"{mirror}/{file}": data for mirror in "ab" for file, data in contents.items()}


def describe(server: DataServer, name: str, data: bytes) -> DataFile:
    unpacked = sha256(gzip.decompress(data)) if "idx" in name else ""
    return DataFile(name, len(data), sha256(data), (server.url(f"a/{name}"), server.url(f"b/{name}")), unpacked)


def refusal(name: str = "mnist") -> str:
    with pytest.raises(DatasetError) as caught:
        load(find_dataset(name))
    return str(caught.value)


def leftovers() -> list[str]:
    return sorted(path.name for path in cache_dir("mnist").rglob("*") if path.name != ".lock")


def fill(folder: Path, *, packed: bool = True) -> None:
    folder.mkdir(parents=True)
    for name, data in mnist_files().items():
        target = folder / name if packed else folder / name.removesuffix(".gz")
        target.write_bytes(data if packed else gzip.decompress(data))


def test_a_download(server: DataServer, capsys: pytest.CaptureFixture[str]) -> None:
    data = load(find_dataset("mnist"))
    assert data.x_train.shape == (TRAIN, 28, 28, 1)
    assert data.x_test.shape == (TEST, 28, 28, 1)
    assert data.x_train.dtype == np.uint8
    assert data.x_train.flags.writeable
    assert data.y_train.tolist() == [number % 10 for number in range(TRAIN)]
    assert data.y_test.dtype == np.int64
    assert sha256(pack_idx(data.x_train[..., 0].astype(np.uint8))) == FILES["mnist"][0].unpacked_sha256
    assert f"downloaded {IMAGES}: 0.0 MB" in capsys.readouterr().out
    assert leftovers() == sorted(mnist_files())
    # The second time nothing is asked for.
    asked = server.asked.copy()
    assert (load(find_dataset("mnist")).x_train == data.x_train).all()
    assert server.asked == asked
    assert set(asked.values()) == {1}
    assert where("mnist") == cache_dir("mnist")


def test_cifar10(server: DataServer) -> None:
    data = load(find_dataset("cifar10"))
    assert data.x_train.shape == (TRAIN, 32, 32, 3)
    assert data.y_train.tolist() == [number % 10 for number in range(TRAIN)]
    assert data.x_train[:, 5, 7].tolist() == [[number, number + 1, number + 2] for number in range(TRAIN)]
    assert data.x_test[:, 31, 0, 2].tolist() == [number + 2 for number in range(TEST)]
    assert data.x_train.flags.c_contiguous


@pytest.mark.parametrize("fault", ["checksum", "half", "refused"])
def test_a_first_mirror_that_fails_otherwise(
    server: DataServer, fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"checksum": "wrong checksum", "half": "IncompleteRead", "refused": "Connection refused"}[fault]
    if fault == "checksum":
        server.files[f"a/{IMAGES}"] = b"<html>sign in</html>"
    elif fault == "half":
        server.cut.add(f"a/{IMAGES}")
    with socket.socket() as deaf:
        # A port that is taken, and where nobody listens.
        deaf.bind(("127.0.0.1", 0))
        if fault == "refused":
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/{IMAGES}"
            first, *others = FILES["mnist"]
            monkeypatch.setitem(FILES, "mnist", (replace(first, urls=(url, first.urls[1])), *others))
        load(find_dataset("mnist"))
    assert said in capsys.readouterr().out
    assert leftovers() == sorted(mnist_files())


def test_a_damaged_file_in_the_cache_is_downloaded_again(
    server: DataServer, capsys: pytest.CaptureFixture[str]
) -> None:
    load(find_dataset("mnist"))
    path = cache_dir("mnist") / IMAGES
    path.write_bytes(path.read_bytes()[:-1])
    (cache_dir("mnist") / ".partial").mkdir()
    (cache_dir("mnist") / ".partial" / "tmp123").write_bytes(b"of a process that was killed")
    load(find_dataset("mnist"))
    assert f"{path} is damaged; it is downloaded again" in capsys.readouterr().out
    assert server.asked[f"a/{IMAGES}"] == 2
    assert leftovers() == sorted(mnist_files())


def test_a_cache_that_was_filled_by_hand_needs_no_network_and_no_permission(server: DataServer) -> None:
    fill(cache_dir("mnist"))
    cache_dir("mnist").chmod(0o500)
    assert load(find_dataset("mnist")).x_train.any()
    assert not server.asked


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "unpacked"])
@pytest.mark.parametrize("folder", ["", "mnist"])
def test_a_folder_of_ones_own(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, packed: bool
) -> None:
    fill(tmp_path / "data" / folder, packed=packed)
    monkeypatch.setenv("TUIAPP_DATA_DIR", str(tmp_path / "data"))
    before = sorted((tmp_path / "data").rglob("*"))
    assert where("mnist") == tmp_path / "data" / folder
    assert load(find_dataset("mnist")).x_train.any()
    assert sorted((tmp_path / "data").rglob("*")) == before
    assert not server.asked
    assert not cache_dir("mnist").exists()


def test_a_wrong_file_in_a_folder_of_ones_own_is_refused(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data")
    monkeypatch.setenv("TUIAPP_DATA_DIR", str(tmp_path / "data"))
    path = tmp_path / "data" / IMAGES
    path.write_bytes(b"something else")
    message = refusal()
    assert message.startswith(f"{path} is damaged, or is not the {IMAGES} of mnist")
    assert f"{tmp_path}/data/mnist" in message
    assert path.read_bytes() == b"something else"
    assert not server.asked


def test_what_a_folder_of_ones_own_lacks_is_downloaded(
    server: DataServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data" / IMAGES).unlink()
    monkeypatch.setenv("TUIAPP_DATA_DIR", str(tmp_path / "data"))
    load(find_dataset("mnist"))
    assert list(server.asked) == [f"a/{IMAGES}"]
    assert leftovers() == [IMAGES]


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_file_with_the_right_checksum_that_holds_something_else(
    monkeypatch: pytest.MonkeyPatch, server: DataServer, name: str
) -> None:
    data = gzip.compress(b"no images")
    first, *others = FILES[name]
    server.files[f"a/{first.name}"] = data
    monkeypatch.setitem(FILES, name, (replace(first, sha256=sha256(data)), *others))
    assert f"{cache_dir(name) / first.name} is damaged" in refusal(name)


PROCESS = """
import sys
from tuiapp.trainers.config.data_files import FILES, DataFile
from tuiapp.trainers.sources.downloads import fetch
url, sha256 = sys.argv[1:]
print(fetch("mnist", DataFile("big.gz", 1, sha256, (url,))))
"""


def test_of_several_processes_one_downloads(server: DataServer, home: Path) -> None:
    data = os.urandom(1 << 24)
    server.files["big"] = data
    command = [sys.executable, "-c", PROCESS, server.url("big"), sha256(data)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert all(words.splitlines()[-1] == str(cache_dir("mnist") / "big.gz") for words in said)
    assert server.asked["big"] == 1
    assert sum("downloaded big.gz" in words for words in said) == 1
