"""What a launch would do: devices, steps, memory, and the equivalent command."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Button, Static

from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.memory import free_memory, jax_pool_bytes, on_host
from tuiapp.trainers.config.run_config import learning_rate_words
from tuiapp.trainers.config.script import short_command
from tuiapp.trainers.state.text import MISSING, format_bytes, join_words, plural, sanitize, sanitize_lines
from tuiapp.view.draft import FIELDS, Draft, device_words, sweep_words
from tuiapp.view.launch_warnings import busy_gpus, memory_warning, unfilled, user_names, why_cpu
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.text_view import TextView

LABEL_CELLS = 10
BETWEEN = " · "
ASIDE = "   "


def _whole_facts(line: Content, room: int) -> Content:
    if line.cell_length <= room:
        return line
    end = max(line.plain.rfind(apart, 0, max(0, room - 1)) for apart in (BETWEEN, ASIDE))
    mark = "" if line.plain.startswith(ASIDE, end) else f"{BETWEEN}…"
    return line if end < LABEL_CELLS else Content.assemble(line[:end], (mark, MUTED))


def _wrapped(line: Content, room: int) -> Content:
    parts = line[LABEL_CELLS:].wrap(max(LABEL_CELLS, room - LABEL_CELLS))
    return Content.assemble(line[:LABEL_CELLS], Content("\n" + " " * LABEL_CELLS).join(parts))


class LaunchFacts(Vertical):
    """Fixed below the form: the derived facts, what prevents a launch, the command and the button.

    While the button has the focus, facts that do not fit a line are wrapped.
    """

    DEFAULT_CSS = """
    LaunchFacts {
        height: auto;

        #facts-row { height: auto; }
        /* The least important facts are at a line's end. */
        #facts { width: 1fr; }
        #launch { width: auto; min-width: 15; margin-left: 1; }
        /* Its text stays readable. */
        #launch:disabled { color: $foreground; background: $surface; text-opacity: 100%; opacity: 100%; }
        #launch.-blocked {
            color: $text-muted;
            background: $surface;
            border-top: tall $surface-lighten-1;
            border-bottom: tall $surface-darken-1;
        }
        #failure-scroll { height: auto; max-height: 6; display: none; }
        #failure { height: auto; color: $text-error; }
        #command-scroll { height: auto; max-height: 4; }
        /* Without the least width the scroll bar would take the last column, and leave again. */
        #command { height: auto; min-width: 1; }
    }
    """

    launching: reactive[bool] = reactive(False, init=False)

    _facts: Sequence[Content] = ()
    """A line each, with " · " between its parts."""
    _begins = "Launch"
    """What the button does."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="failure-scroll", can_focus=False):
            yield Static(id="failure")
        with Horizontal(id="facts-row"):
            yield TextView(id="facts")
            yield Button("Launch ^r", variant="success", id="launch")
        with VerticalScroll(id="command-scroll", can_focus=False):
            yield Static(id="command")

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _show_facts(self) -> None:
        fit = _wrapped if self.query_one("#launch").has_focus else _whole_facts
        facts = self._facts
        self.query_one("#facts", TextView).update(
            lambda width: [part for fact in facts for part in fit(fact, width).split("\n")]
        )

    def show(
        self, draft: Draft, machine: Machine | None, command: str | None, failure: str, expected: str = ""
    ) -> None:
        """Shows a draft's facts; `machine` is None during inspection, `command` None while a field is invalid."""
        general = "\n".join(filter(None, (failure, draft.problems.get("", ""))))
        self.query_one("#failure-scroll").display = bool(general)
        self.query_one("#failure", Static).update(Content("✗ " + "\n".join(sanitize_lines(general))))
        # Grey but not disabled: pressing it explains why it does not launch.
        self.query_one("#launch").set_class(bool(draft.problems), "-blocked")
        self._begins = f"{'Search' if draft.search else 'Sweep'} of {draft.runs}" if draft.axes else "Launch"
        self.watch_launching(self.launching)
        self._facts = fact_lines(draft, machine, expected)
        self._show_facts()
        self.query_one("#command", Static).update(self._command(draft, command))

    def watch_launching(self, launching: bool) -> None:
        button = self.query_one("#launch", Button)
        button.disabled = launching
        label = Content("Starting…" if launching else f"{self._begins} ^r")
        if button.label != label:
            button.label = label
            button.refresh(layout=True)

    @staticmethod
    def _command(draft: Draft, command: str | None) -> Content:
        if command is not None:
            return Content.assemble(
                ("$ ", MUTED),
                (sanitize(command), "$text-accent"),
            )
        labels = ", ".join(option.label for key, option in FIELDS.items() if key in draft.not_in_words)
        return Content.styled(f"no command: fix {labels} first", MUTED)


def fact_lines(draft: Draft, machine: Machine | None, expected: str = "") -> list[Content]:
    """Returns what a launch would do, a line for each kind of fact; `expected` says what a sweep will take."""
    wrong = [option.label for key, option in FIELDS.items() if key in draft.problems]
    devices = _devices(draft, machine)
    if wrong:
        devices = Content.styled(f"✗ see above: {', '.join(wrong)}", "$text-error")
    rows = [("Devices", devices), ("Training", _training(draft)), ("Memory", _memory(draft, machine))]
    if draft.is_script:
        directory = sanitize(draft.placed.working_directory) if draft.placed else MISSING
        rows = [("Devices", devices), ("Command", _script(draft)), ("In", Content(directory))]
    if draft.axes:
        rows.insert(0, ("Search" if draft.search else "Sweep", Content(join_words([sweep_words(draft), expected]))))
    return [Content.assemble((name.ljust(LABEL_CELLS), MUTED), words) for name, words in rows]


def _devices(draft: Draft, machine: Machine | None) -> Content:
    if machine is None:
        return Content("detecting devices…")
    if draft.placed is None:
        return Content(MISSING)
    text = Content(device_words(draft.placed, machine))
    if why := why_cpu(draft.config, draft.placed, machine):
        text = Content.assemble(text, BETWEEN, (f"! {why}", "bold $text-warning"))
    users: dict[str, list[str]] = {}
    for gpu in busy_gpus(draft.placed, machine):
        for user in user_names(gpu) or ("others",):
            users.setdefault(user, []).append(gpu.number)
    if users:
        # The list above has the figures.
        used = "; ".join(f"GPU {', '.join(numbers)} used by {user}" for user, numbers in users.items())
        text = Content.assemble(text, BETWEEN, (f"! {used}", "bold $text-warning"))
    if draft.batch_words:
        text = Content.assemble(text, f"{BETWEEN}{draft.batch_words}")
    if draft.mesh:
        text = Content.assemble(text, f"{BETWEEN}mesh {draft.mesh}")
    return text


def _training(draft: Draft) -> Content:
    parameters = MISSING if draft.parameters is None else f"{draft.parameters:,}"
    per_epoch = MISSING if draft.steps_per_epoch is None else f"{draft.steps_per_epoch:,}"
    total = MISSING if draft.total_steps is None else f"{draft.total_steps:,}"
    rate = f"learning rate {text}" if (text := learning_rate_words(draft.resolved)) else ""
    text = join_words([f"{per_epoch} steps per epoch", f"{total} in all", rate, f"{parameters} parameters"])
    left_out = f"{ASIDE}{plural(draft.left_out, 'example')} per epoch left out" if draft.left_out else ""
    return Content.assemble(text, (left_out, MUTED))


def _script(draft: Draft) -> Content:
    """Returns the command that each process runs."""
    if draft.placed is None:
        return Content(MISSING)
    text = Content(sanitize(short_command(draft.placed)))
    if why := unfilled(draft.placed):
        text = Content.assemble(text, BETWEEN, (f"! {why}", "bold $text-warning"))
    return text


def _memory(draft: Draft, machine: Machine | None) -> Content:
    estimate, placed = draft.memory, draft.placed
    if estimate is None or placed is None or machine is None:
        return Content(MISSING)
    if warning := memory_warning(placed, machine, estimate):
        return Content.styled(f"! {warning}", "bold $text-warning")
    text = f"about {format_bytes(estimate.total)} per device"
    if placed.platform != "cuda" and placed.devices > placed.nodes:
        text += f", {format_bytes(on_host(placed, estimate))} {'on each node' if placed.nodes > 1 else 'in all'}"
    if free := free_memory(placed, machine):
        text += f" · {format_bytes(min(held for _, held in free))} free"
    if pool := jax_pool_bytes(placed, machine):
        text += f", of which JAX takes {format_bytes(pool)}"
    parts = {
        "parameters": estimate.parameters,
        "gradients": estimate.gradients,
        "optimizer": estimate.optimizer,
        "activations": estimate.activations,
        "data": estimate.data,
        **({"averaged weights": estimate.average} if estimate.average else {}),
    }
    # The largest first: the rest may not fit.
    largest = sorted(parts.items(), key=lambda part: -part[1])
    made_of = " · ".join(f"{name} {format_bytes(held)}" for name, held in largest)
    return Content.assemble(text, (f"{ASIDE}{made_of}", MUTED))
