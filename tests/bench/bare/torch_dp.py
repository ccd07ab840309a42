"""PyTorch DataParallel as its tutorial writes it: one process, a DataLoader, no telemetry.

Source: https://docs.pytorch.org/tutorials/beginner/blitz/data_parallel_tutorial.html
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.bare.common import Race
from tests.bench.bare.on_torch import (
    as_tensor,
    autocast,
    compiled,
    finish,
    loss_of,
    memory_format,
    moved,
    set_arithmetic,
)
from tuiapp.trainers.frameworks.torch import models as torch_models


def main() -> None:
    race = Race.from_command_line()
    on_gpu = race.platform == "cuda"
    device = torch.device("cuda:0" if on_gpu else "cpu")
    set_arithmetic(race)
    images, labels = race.load()
    dataset = TensorDataset(as_tensor(images), torch.from_numpy(labels))
    loader = DataLoader(dataset, batch_size=race.global_batch_size, shuffle=True, pin_memory=on_gpu, drop_last=True)
    torch.manual_seed(0)
    model = torch_models.build(race.model, images.shape[1:], race.classes)
    layout = memory_format(race)
    model = model.to(device, memory_format=layout)  # type: ignore[call-overload]
    # By default it takes all GPUs that it sees.
    parallel = nn.DataParallel(compiled(race, model), list(range(race.devices)) if on_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(race.epochs):
        race.begin_epoch()
        for x, y in loader:
            optimizer.zero_grad()
            with autocast(race):
                loss = loss_of(parallel(moved(x, device, race)), y.to(device))
            loss.backward()
            optimizer.step()
            if not race.first_step:
                loss.item()
                race.step_done()
        finish(race)
        race.end_epoch(epoch)
    race.print_result(len(images))


if __name__ == "__main__":
    main()
