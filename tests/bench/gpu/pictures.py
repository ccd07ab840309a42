"""The dashboard in a terminal: started, launched from, watched while it trains, and left."""

from __future__ import annotations

from tests.bench.gpu import smi
from tests.bench.gpu.box import TUIAPP, Box
from tests.kit.harness import START_S, watching
from tests.kit.terminal import READY, Terminal
from tuiapp.library.find import find_run
from tuiapp.library.presets import save_preset
from tuiapp.trainers.contract import sidecars

PRESET = "on-this-machine"


def dashboard(box: Box) -> None:
    # It goes on until it is stopped, so that there is something to be seen on a fast machine, too.
    save_preset(PRESET, box.config(model="net", epochs=100_000, checkpoint_every=0))
    with Terminal([*TUIAPP, "--runs-dir", str(box.runs_dir)], columns=120, lines=45) as terminal:
        ready = terminal.wait(READY if box.on_cpu else r"GPU[\s\S]*quickstart[\s\S]*\^q Quit")
        box.find.note("s until the form is there", f"{ready:.1f}")
        terminal.wait(rf"{PRESET}\b")
        terminal.wait_for_silence()
        terminal.click(rf"{PRESET}\b")
        terminal.wait(rf"tuiapp run {PRESET}\b")
        keep(box, terminal, "configure")
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", START_S)
        with watching(find_run("latest", box.runs_dir)) as run:
            terminal.wait(r"epoch +[3-9]|epoch +[1-9][0-9]", START_S)
            # Devices are sampled once a second, and rates take two samples.
            terminal.wait_for_silence(1.5, 4)
            text = keep(box, terminal, "run")
            box.find.holds("loss, ranks and devices are on the screen", all(word in text for word in SHOWN))
            if not box.on_cpu:
                name = next(row["name"] for row in smi.ask() if row["uuid"] == box.gpus[0])
                word = name.removeprefix("NVIDIA ").split()[0]
                box.find.holds(f"{word} is on the screen", word in text)
            sidecars.send_command(run.run.commands, "stop")
            run.end()
            terminal.wait("STOPPED")
            keep(box, terminal, "stopped")
        terminal.press("ctrl+q")
        box.find.holds("it is left with exit code 0", terminal.wait_exit() == 0)
        box.find.holds("the terminal is as it was", terminal.restored())


SHOWN = ("loss", "ranks", "devices", "RUNNING")


def keep(box: Box, terminal: Terminal, name: str) -> str:
    """Keeps the screen as text, and as PNG where Pillow and its font are installed; returns the text."""
    text = terminal.text
    (box.directory / f"{name}.txt").write_text(text + "\n")
    try:
        from screenshots import picture

        picture.save(picture.cells_of(terminal.screen), box.directory / f"{name}.png")
    except (ImportError, OSError) as error:
        box.find.note(f"no PNG of {name}, only text", error)
    return text
