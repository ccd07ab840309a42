"""Checkpoints are checked before use: what is damaged, or of another training, is passed over and named."""

from __future__ import annotations

import pytest

from tests.kit.small_checkpoints import CLASSES, CONFIG, newest_usable, save
from tuiapp.trainers.contract.manifest import MANIFEST, MODEL_FILE, CheckpointError, checkpoint_name, read_checkpoint
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.checkpoints import STATE_FILE


@pytest.mark.parametrize("how", ["flipped", "shorter", "gone", "manifest gone", "manifest damaged", "manifest moved"])
def test_a_damaged_checkpoint_is_passed_over_and_named(run: RunDir, how: str) -> None:
    save(run, 29, 58)
    newest = run.checkpoints / checkpoint_name(58)
    data = bytearray((newest / STATE_FILE).read_bytes())
    match how:
        case "flipped":
            data[len(data) // 2] ^= 1
            (newest / STATE_FILE).write_bytes(data)
        case "shorter":
            (newest / STATE_FILE).write_bytes(data[:-1])
        case "gone":
            (newest / MODEL_FILE).unlink()
        case "manifest gone":
            (newest / MANIFEST).unlink()
        case "manifest damaged":
            (newest / MANIFEST).write_bytes((newest / MANIFEST).read_bytes()[:-20])
        case "manifest moved":
            (newest / MANIFEST).write_bytes((run.checkpoints / checkpoint_name(29) / MANIFEST).read_bytes())
    checkpoint, notes = newest_usable(run.checkpoints, CONFIG, CLASSES)
    assert checkpoint.manifest.step == 29
    assert len(notes) == 1
    assert str(newest) in notes[0]
    (run.checkpoints / checkpoint_name(29) / STATE_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"no usable checkpoint: .*step-0000005.*step-00000029"):
        newest_usable(run.checkpoints, CONFIG, CLASSES)


def test_every_flipped_bit_is_noticed(run: RunDir) -> None:
    save(run, 29)
    file = run.checkpoints / checkpoint_name(29) / STATE_FILE
    good = file.read_bytes()
    checkpoint = read_checkpoint(file.parent)
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ (1 << position % 8)]) + good[position + 1 :])
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.verify()


def test_a_manifest_cannot_point_elsewhere(run: RunDir) -> None:
    save(run, 29)
    manifest = run.checkpoints / checkpoint_name(29) / MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"{MODEL_FILE}"', '"../../run.toml"'))
    with pytest.raises(CheckpointError, match="does not match its directory"):
        read_checkpoint(manifest.parent)
