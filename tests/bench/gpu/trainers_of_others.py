"""Other people's trainers with their adapters, where they are installed: transformers and Lightning."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from tests.bench.gpu.box import Box
from tests.bench.gpu.findings import SkipCheck
from tests.kit.harness import Watched
from tests.kit.reported import values
from tuiapp.examples import __path__ as examples
from tuiapp.trainers.contract.events import LogLine, Metrics, RankStarted
from tuiapp.trainers.contract.rundir import RunDir

TRANSFORMERS = """
import runpy, sys, torch
sys.argv = ["huggingface_tiny.py", "--epochs", "1", "--output-dir", {output!r}]
runpy.run_path({example!r}, run_name="__main__")
print("bytes on the GPU:", torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
"""

LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from tuiapp.integrations.lightning import TuiappCallback, TuiappLogger

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.TensorDataset(torch.randn(400, 64))
trainer = Trainer(
    accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=1, max_steps=40, log_every_n_steps=1,
    logger=TuiappLogger("tiny"), callbacks=[TuiappCallback()], enable_progress_bar=False, enable_checkpointing=False,
    default_root_dir={output!r},
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=10))
print("bytes on the GPU:", torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
"""


def report(box: Box) -> None:
    scripts = {"transformers": TRANSFORMERS, "lightning": LIGHTNING}
    present = [name for name in scripts if importlib.util.find_spec(name)]
    if not present:
        raise SkipCheck(f"neither {' nor '.join(scripts)} is installed")
    for name, text in scripts.items():
        if name not in present:
            box.find.note(f"{name} skipped", "not installed")
            continue
        example = str(Path(next(iter(examples))) / "huggingface_tiny.py")
        script = box.directory / f"{name}_tiny.py"
        script.write_text(text.format(output=str(box.directory / name), example=example))
        with box.find.part(name):
            reports(box, name, script)


def reports(box: Box, name: str, script: Path) -> None:
    places = ["platform=cpu"] if box.on_cpu else ["platform=cuda", f"device_ids={box.gpus[0]}"]
    settings = [part for one in (*places, "devices=1", "processes=one") for part in ("--set", one)]
    done = box.tuiapp("run", str(script), *settings, "--json", "--runs-dir", str(box.runs_dir))
    box.find.holds(f"{name}: the script completes", done.returncode == 0, done.stderr.strip()[-500:])
    if done.returncode:
        return
    run = Watched(RunDir(Path(json.loads(done.stdout.splitlines()[-1])["directory"])))
    curve = [loss for loss in values(run.of(Metrics), "loss") if loss is not None]
    box.find.at_least(f"{name}: losses reported", len(curve), 5, "d")
    if box.on_cpu:
        return
    said = [line.text for line in run.of(LogLine) if line.text.startswith("bytes on the GPU:")]
    box.find.holds(f"{name}: it trains on the GPU", said and int(said[-1].rpartition(" ")[2]) > 0, said)
    uuids = {started.uuid for started in run.of(RankStarted)}
    box.find.holds(f"{name}: on the one that it was given", uuids == {box.gpus[0]}, ", ".join(uuids))
