"""A real run beside a library that says what a script says: the widgets show that, and the alerts come and go."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler
from tests.kit.harness import MLP, launched
from tuiapp.screens.run import RunScreen
from tuiapp.widgets.alert_strip import AlertStrip
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.text_view import TextView

pytestmark = pytest.mark.nightly

WAIT_S = 60.0


async def until(pilot: Pilot[None], condition: Callable[[], bool], screen: RunScreen) -> None:
    """Wait until a condition holds; the run and its sampler have their own pace."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, panel_text(screen)
        await pilot.pause(0.05)


def panel_text(screen: RunScreen) -> str:
    """All that the panel holds, scrolled out of sight or not."""
    return "\n".join(str(one.render()) for one in screen.query_one(DevicePanel).query(TextView))


LABEL_CELLS = 16


def cells(screen: RunScreen) -> dict[str, list[str]]:
    """The rows of the GPUs, without their bars: name → what each GPU has there. A row may have two names."""
    found = {}
    for row in panel_text(screen).splitlines():
        if row[:1].strip():
            rest = [cell.strip(" █▉▊▋▌▍▎▏") for cell in re.split(r"\s{2,}", row[LABEL_CELLS:])]
            rest = [cell for cell in rest if cell]
            found[row[:LABEL_CELLS].strip()] = rest
            if len(rest) == 6:
                found[row[:LABEL_CELLS].strip()], found[rest[1]] = rest[::3], rest[2::3]
    return found


@needs_compiler
async def test_widgets_show_what_the_library_says(
    tmp_path: Path, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = [gpu("GPU-aaaa", "NVIDIA H200"), gpu("GPU-bbbb", "NVIDIA H200", fan=None, utilization=97, power_mw=612000)]
    fake = FakeNvml(tmp_path, "".join(well))
    fake.install(monkeypatch)
    # CPU ranks use no GPU: this has them sampled beside the run all the same.
    monkeypatch.setenv("TUIAPP_TELEMETRY_GPUS", "all")
    monkeypatch.setenv("TUIAPP_TELEMETRY_S", "0.25")
    app = App[None]()
    with launched(MLP, runs_dir) as run:
        async with app.run_test(size=(120, 60)) as pilot:
            screen = RunScreen(run.run)
            await app.push_screen(screen)
            await pilot.press("2")
            await until(pilot, lambda: cells(screen).get("utilization") == ["42 %", "97 %"], screen)
            told = cells(screen)
            assert told["GPU"] == ["0 H200", "1 H200"]
            assert told["memory"] == ["5.0/80.0 GiB"] * 2
            assert told["memory busy"] == ["7 %"] * 2
            assert told["power"] == ["310/700 W", "612/700 W"]
            assert told["temperature"] == ["61/87 °C"] * 2
            assert told["SM clock"] == ["1,755 MHz"] * 2
            assert told["memory clock"] == ["2,619 MHz"] * 2
            assert told["fan"] == ["30 %", "n/a"]
            assert told["perf. state"] == ["P0"] * 2
            assert told["throttled by"] == ["nothing"] * 2
            await until(pilot, lambda: "rank 0 " in panel_text(screen), screen)
            assert "host memory" in panel_text(screen)

            hot = gpu("GPU-bbbb", "NVIDIA H200", temperature=93, reasons="0x40", memory_used=79 * GIB)
            fake.say(well[0] + hot)
            await until(pilot, lambda: cells(screen)["throttled by"] == ["nothing", "too hot"], screen)
            assert cells(screen)["state"][1] == "▲ slowed: too hot"
            strip = screen.query_one(AlertStrip)
            await until(pilot, lambda: "GPU 1 is too hot" in str(strip.render()), screen)
            fake.say("".join(well))
            await until(pilot, lambda: cells(screen)["temperature"] == ["61/87 °C"] * 2, screen)
            await until(pilot, lambda: "too hot" not in str(strip.render()), screen)

            fake.say(well[0] + gpu("GPU-bbbb", "NVIDIA H200", "fault nvmlDeviceGetUtilizationRates return 15"))
            await until(pilot, lambda: "✖" in cells(screen)["state"][1], screen)
            assert "lost" in cells(screen)["state"][1].lower()
            fake.say("".join(well))
            await until(pilot, lambda: "✖" not in cells(screen)["state"][1], screen)
