"""A plain PyTorch loop, without tuiapp: `python -m tests.bench.gpu.bare_loop DATA MODEL BATCH DEVICE LABEL:EPOCHS…`.

What `torch-ddp` does on one device, as PyTorch's guides write it for one: the data on the device as bytes, the same
model, Adam, channels last where the program takes it, the same precision, cuDNN's fastest algorithms. A label is a
precision, with `+compile` at its end where the model is compiled, `+graphs` where it is replayed as CUDA graphs, too.
Prints JSON, label → images per second over the epochs after the first; each epoch ends with a synchronization.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F

from tuiapp.trainers.frameworks.torch import models as torch_models


def main(data: str, model: str, batch: str, device: str, *wanted: str) -> None:
    with np.load(data) as stored:
        images = torch.from_numpy(stored["x_train"]).to(device)
        labels = torch.from_numpy(stored["y_train"]).long().to(device)
    torch.backends.cudnn.benchmark = device == "cuda"
    rates = {}
    for one in wanted:
        label, _, epochs = one.partition(":")
        rates[label] = rate(images, labels, model, int(batch), label, int(epochs))
    print(json.dumps(rates), flush=True)


def rate(images: torch.Tensor, labels: torch.Tensor, name: str, batch: int, label: str, epochs: int) -> float:
    """Images per second, over all epochs but the first."""
    precision, _, compiled = label.partition("+")
    device = images.device
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    last = device.type == "cuda" and precision != "float32"
    layout = torch.channels_last if last else torch.contiguous_format
    torch.manual_seed(0)
    height, width, channels = images.shape[1:]
    module = torch_models.build(name, (height, width, channels), 10).to(device, memory_format=layout)  # type: ignore[call-overload]
    model = torch.compile(module, mode="reduce-overhead" if compiled == "graphs" else None) if compiled else module
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=True)
    steps, seconds = len(images) // batch, 0.0
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
    pixels = images.permute(0, 3, 1, 2)
    for epoch in range(epochs):
        began = time.perf_counter()
        order = torch.randperm(len(images), device=device)
        for rows in order[: steps * batch].view(steps, batch):
            x = pixels[rows].contiguous(memory_format=layout).float().div_(255)
            with autocast:
                loss = F.cross_entropy(model(x), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds += time.perf_counter() - began if epoch else 0.0
    return (epochs - 1) * steps * batch / seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
