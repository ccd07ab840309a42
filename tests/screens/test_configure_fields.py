"""The form: rare fields, fields looked for, weights, the checklist of GPUs, facts; it opens as it was left."""

from __future__ import annotations

import stat

import msgspec
import pytest
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.kit import histories
from tests.kit.configure_app import Launches, Start, field, screen, type_into, until, words
from tests.kit.recorded import record, record_checkpoint
from tuiapp.library.chart_view import LastForm, form_path, last_form, read_last_form
from tuiapp.library.presets import delete_preset, save_preset
from tuiapp.screens.pickers import FieldList
from tuiapp.trainers.config.machine import Gpu, GpuProcess, Machine
from tuiapp.trainers.config.run_config import OPTIONS, RunConfig
from tuiapp.trainers.contract.rundir import default_runs_dir
from tuiapp.view.draft import Draft, command_line, examine, to_texts
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.config_form import ConfigForm, FoldLine
from tuiapp.widgets.gpu_checklist import GpuChecklist, describe_gpus, details
from tuiapp.widgets.launch_facts import LaunchFacts, _training, _whole_facts
from tuiapp.widgets.option_field import LABEL_CELLS, OptionField
from tuiapp.widgets.text_view import TextView


def test_labels_fit_their_column() -> None:
    mark, gap = 2, 1
    assert [one.label for one in OPTIONS.values() if mark + len(one.label) + gap > LABEL_CELLS] == []


async def look_for(pilot: Pilot[None], text: str) -> None:
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(pilot.app.screen, FieldList) and bool(pilot.app.screen.query("#search")))
    await pilot.press(*text)
    await until(pilot, lambda: pilot.app.screen.query_one("#search").value == text)  # type: ignore[attr-defined]
    await pilot.pause()


@pytest.mark.nightly
async def test_rare_fields_fold_while_they_have_their_defaults(start: Start) -> None:
    async with start() as pilot:
        fold = screen(pilot).query_one(FoldLine)
        rare = [one for one in screen(pilot).query(OptionField) if one.option.is_rare]
        assert not any(one.display for one in rare)
        fold.focus()
        await pilot.press("enter")
        await until(pilot, lambda: field(pilot, "keep_checkpoints").display)
        assert not field(pilot, "nesterov").display
        await type_into(pilot, "keep_checkpoints", "5")
        fold.focus()
        await pilot.press("space")
        await until(pilot, lambda: [one.option.key for one in rare if one.display] == ["keep_checkpoints"])
        assert OPTIONS["gradient_clip"].label in str(fold.content)
        assert OPTIONS["keep_checkpoints"].label not in str(fold.content)


@pytest.mark.nightly
async def test_what_a_preset_sets_is_never_folded(start: Start) -> None:
    save_preset("mine", RunConfig(nan_policy="stop", best="loss"))
    async with start(preset="mine") as pilot:
        rare = [one for one in screen(pilot).query(OptionField) if one.option.is_rare]
        assert {one.option.key for one in rare if one.display} == {"nan_policy", "best"}
        # Nor is what was put back to its default.
        await type_into(pilot, "best", "accuracy")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: field(pilot, "best").changed)
        assert field(pilot, "best").display


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "key"), [("lr", "learning_rate"), ("ate ev", "eval_every"), ("clip", "gradient_clip"), ("gpus", "devices")]
)
async def test_a_field_is_found_by_any_part_of_its_names_and_shown(start: Start, text: str, key: str) -> None:
    async with start() as pilot:
        await look_for(pilot, text)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen(pilot) and field(pilot, key).has_focus_within)


@pytest.mark.nightly
async def test_a_field_that_does_not_apply_says_with_what_it_does_and_leads_there(start: Start) -> None:
    async with start() as pilot:
        await look_for(pilot, "nesterov")
        found = pilot.app.screen.query_one(OptionList).get_option("nesterov")
        assert "with optimizer sgd" in str(found.prompt)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen(pilot))
        await until(pilot, lambda: field(pilot, "optimizer").has_focus_within)


@pytest.mark.nightly
async def test_what_is_typed_on_a_choice_leads_to_its_value(start: Start) -> None:
    async with start() as pilot:
        choice = field(pilot, "backend").query_one(ChoiceInput)
        choice.focus()
        await until(pilot, lambda: choice.has_focus)
        await pilot.press(*"jax-")
        menu = choice.query_one(OptionList)
        assert menu.highlighted == choice.choices.index("jax-sharding")
        await pilot.press(*"scr")
        assert menu.highlighted == choice.choices.index("script")
        await pilot.press("enter")
        await until(pilot, lambda: field(pilot, "backend").text == "script" and choice.has_focus)
        # The last of many is scrolled to, also when its letter opens the menu.
        await pilot.press("s")
        opened = choice.query_one(OptionList)
        await until(pilot, lambda: opened.max_scroll_y > 0 and opened.scroll_offset.y == opened.max_scroll_y)
        await pilot.press("escape")
        # Anew with the next menu; what nothing begins with changes nothing.
        await pilot.press(*"torch")
        assert choice.query_one(OptionList).highlighted == choice.choices.index("torch-ddp")
        await pilot.press(*"keras-j")
        assert choice.query_one(OptionList).highlighted == choice.choices.index("keras-jax")
        await pilot.press("q", "escape")
        await until(pilot, lambda: choice.has_focus)
        assert field(pilot, "backend").text == "script"


LINE = "Memory    26 MiB per device · 6 GiB free   activations 17 MiB · data 5 MiB"


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (74, LINE),
        (73, "Memory    26 MiB per device · 6 GiB free   activations 17 MiB · …"),
        (60, "Memory    26 MiB per device · 6 GiB free"),
        (39, "Memory    26 MiB per device · …"),
        # Nothing whole has room: the style sheet cuts it.
        (20, LINE),
    ],
)
def test_whole_facts_are_left_out(room: int, shown: str) -> None:
    assert _whole_facts(Content(LINE), room).plain == shown


def test_a_rate_for_another_batch_is_said_with_what_it_comes_to() -> None:
    config = RunConfig(global_batch_size=64, learning_rate=0.1, learning_rate_for=256)
    training = str(_training(Draft(base=config, config=config)))
    assert "220 in all · learning rate 0.1 for 256 → 0.025 at 64 · 225,226 parameters" in training


def test_a_batch_of_each_device_takes_the_place_of_the_global_one(machine: Machine) -> None:
    base = RunConfig(global_batch_size=96, learning_rate=0.1, learning_rate_for=256)
    draft = examine({**to_texts(base), "per_device_batch_size": "32"}, base, machine)
    assert "global_batch_size" in draft.hidden
    assert draft.batch_words == "32 examples a step on each"
    assert "220 in all · learning rate 0.1 for 256 → 0.025 at 64" in str(_training(draft))
    assert command_line(draft, None, None) == "tuiapp run --set per_device_batch_size=32"
    wrong = examine({**to_texts(base), "per_device_batch_size": "1000"}, base, machine)
    assert wrong.problems == {"per_device_batch_size": "2,000 is more than the 1,437 training examples of digits."}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [(64, 24), (120, 40)])
async def test_the_focused_button_opens_facts_that_are_left_out(start: Start, size: tuple[int, int]) -> None:
    async with start(size=size) as pilot:
        facts = screen(pilot).query_one("#facts", TextView)
        await until(pilot, lambda: "…" in str(facts.render()))
        lines, every = facts.size.height, screen(pilot).query_one(LaunchFacts)._facts
        screen(pilot).query_one("#launch").focus()
        await until(pilot, lambda: facts.size.height > lines)
        shown = " ".join(str(facts.render()).split())
        assert shown == " ".join(" ".join(map(str, every)).split())
        assert facts.region.bottom <= screen(pilot).size.height
        await pilot.press("shift+tab")
        await until(pilot, lambda: facts.size.height == lines)


GIB = 1 << 30


def gpu(index: int, used_bytes: int = 0, *processes: GpuProcess, **facts: object) -> Gpu:
    known = Gpu(
        index=index,
        uuid=f"GPU-{index:04}",
        name="NVIDIA H200",
        memory_total_bytes=139 * GIB,
        memory_used_bytes=used_bytes,
        utilization_percent=7,
        processes=processes,
    )
    return msgspec.structs.replace(known, **facts)


def machine_of(*gpus: Gpu) -> Machine:
    return Machine(cpu_cores=8, memory_total_bytes=64 * GIB, memory_available_bytes=60 * GIB, gpus=gpus, driver="580")


def test_a_line_says_all_that_is_known_of_a_gpu() -> None:
    ada = GpuProcess(pid=7, user="ada", name="python", memory_bytes=12 * GIB)
    hidden = GpuProcess(memory_bytes=GIB)
    used, unused, mute = map(
        str,
        describe_gpus(
            [
                gpu(0, 13 * GIB, ada, ada, hidden),
                gpu(1),
                gpu(2, memory_used_bytes=None, utilization_percent=None, processes=None, name="a\x1b[31mb"),
            ],
            frozenset({"GPU-0001"}),
        ),
    )
    assert used == "[ ]  0  NVIDIA H200   126/139 GiB free    7 % busy  ada, others"
    assert unused == "[x]  1  NVIDIA H200   139/139 GiB free    7 % busy  unused"
    # What it does not tell is neither 0 nor "unused".
    assert mute.split() == ["[", "]", "2", "ab"]
    assert details(gpu(0, 13 * GIB, ada, ada, hidden)) == (
        "7 % busy · ada 2 processes 24.0 GiB, others 1 process 1.00 GiB · GPU-0000"
    )


def test_a_gpu_with_the_systems_memory_says_so() -> None:
    spark = gpu(0, 20 * GIB, has_system_memory=True)
    assert "119/139 GiB free (system)" in str(describe_gpus([spark], frozenset())[0])
    assert details(spark).startswith("the system's memory · ")


@pytest.mark.nightly
async def test_looking_again_keeps_what_was_chosen_and_where_one_is(start: Start) -> None:
    async with start(machine=machine_of(gpu(0), gpu(1))) as pilot:
        checklist = screen(pilot).query_one(GpuChecklist)
        checklist.focus()
        assert str(checklist.get_option_at_index(0).prompt) == "[x] idle ones · now 0, 1"
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert field(pilot, "device_ids").text == "1"
        assert str(checklist.get_option_at_index(0).prompt).startswith("[ ]")
        screen(pilot).call_later(screen(pilot).take_machine, machine_of(gpu(0), gpu(1, 100 * GIB)))
        await until(pilot, lambda: "39.0/139 GiB" in str(checklist.get_option_at_index(2).prompt))
        assert checklist.has_focus
        assert "GPU-0001" in str(screen(pilot).query_one(ConfigForm).border_subtitle)
        assert checklist.highlighted == 2
        assert str(checklist.get_option_at_index(2).prompt).startswith("[x]")
        assert str(checklist.get_option_at_index(0).prompt) == "[ ] idle ones · now 0"
        # Others than before: a list of its own.
        screen(pilot).call_later(screen(pilot).take_machine, machine_of(gpu(1)))
        await until(pilot, lambda: screen(pilot).query_one(GpuChecklist).option_count == 2)
        alone = screen(pilot).query_one(GpuChecklist)
        assert str(alone.get_option_at_index(1).prompt).startswith("[x]")
        # Back to idle ones.
        alone.focus()
        await pilot.press("home", "enter")
        await until(pilot, lambda: field(pilot, "device_ids").text == "")
        assert str(alone.get_option_at_index(0).prompt) == "[x] idle ones · now 1"
        assert str(alone.get_option_at_index(1).prompt).startswith("[ ]")


async def test_a_key_looks_at_the_devices_again(start: Start) -> None:
    async with start() as pilot:
        assert screen(pilot)._machine is not None
        known = screen(pilot)._machine
        await pilot.press("f6")
        await until(pilot, lambda: screen(pilot)._machine is not known)
        assert "in all" in words(pilot, "#facts")


def title(pilot: object) -> str:
    return str(screen(pilot).query_one("ConfigForm").border_title)  # type: ignore[arg-type]


@pytest.mark.nightly
async def test_the_form_opens_as_it_was_left_and_a_key_brings_the_preset_back(start: Start) -> None:
    save_preset("mine", RunConfig(epochs=9))
    async with start(preset="mine", remembers=True) as pilot:
        assert "last used" not in title(pilot)
        await type_into(pilot, "learning_rate", "0.1, 0.01")
        await type_into(pilot, "name", "once")
    assert stat.S_IMODE(form_path().stat().st_mode) == 0o600
    async with start(preset="quickstart", remembers=True) as pilot:
        assert [field(pilot, key).text for key in ("epochs", "learning_rate", "name")] == ["9", "0.1, 0.01", ""]
        assert "mine • 1 change · last used, F5: quickstart" in title(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: "last used" not in title(pilot))
        assert screen(pilot).command == "tuiapp run quickstart"
        await pilot.press("ctrl+z")
        await until(pilot, lambda: field(pilot, "learning_rate").text == "0.1, 0.01")
    delete_preset("mine")
    async with start(preset="quickstart", remembers=True) as pilot:
        assert "Defaults • 2 changes · last used" in title(pilot)
        assert field(pilot, "epochs").text == "9"


async def test_what_is_launched_is_kept_at_once(start: Start, launches: Launches) -> None:
    async with start(remembers=True) as pilot:
        await type_into(pilot, "epochs", "3")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(launches.configs))
        assert read_last_form() == (LastForm(changes={"epochs": "3"}), "")


def test_what_is_kept_is_what_differs_from_the_defaults() -> None:
    texts = {**to_texts(RunConfig(epochs=3)), "name": "x", "tags": "y"}
    assert msgspec.to_builtins(last_form("mlp", texts)) == {"schema": 1, "preset": "mlp", "changes": {"epochs": "3"}}


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_that_resumes_no_longer_needs_them(machine: Machine, resumes: bool) -> None:
    config = RunConfig(platform="cpu", init_from="/gone/x.safetensors", freeze="conv*")
    draft = examine(to_texts(config), config, machine, resumes=resumes)
    assert list(draft.problems) == ([] if resumes else ["init_from"])
    assert draft.config == config


@pytest.mark.nightly
async def test_a_run_is_named_and_the_command_and_the_launch_have_its_directory(
    start: Start, launches: Launches
) -> None:
    run = record(default_runs_dir(), "20261120T000001-torch-ddp-net-0123", histories.completed())
    async with start() as pilot:
        await type_into(pilot, "init_from", "2026112")
        assert "has no checkpoint yet" in field(pilot, "init_from").problem
        record_checkpoint(run, 29)
        await type_into(pilot, "init_from", "nobody")
        assert "'nobody' is no run" in field(pilot, "init_from").problem
        await type_into(pilot, "init_from", "latest")
        await until(pilot, lambda: field(pilot, "init_from").problem == "")
        await type_into(pilot, "freeze", "conv*,bn*")
        assert screen(pilot).command == f"tuiapp run --set init_from={run.path} --set 'freeze=conv*,bn*'"
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert [(one.init_from, one.freeze) for one in launches.configs] == [(str(run.path), "conv*,bn*")]
