"""What the model predicts: of images each class's accuracy, the confusion matrix, and the worst examples.

Of a text what the model writes, and the accuracy of the most frequent tokens.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content

from tuiapp.trainers.contract.events import WORST_EXAMPLES, Media, Predictions
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import bar, format_percent, sanitize_lines
from tuiapp.view.pictures import LEAST_WIDTH
from tuiapp.view.predictions import ClassAccuracy, by_class, class_name, confusions, is_matrix
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.media_panel import Pictures
from tuiapp.widgets.text_view import TextPanel, TextView

MOST_NAME = 16
BAR = 10
MAX_PAIRS = 8
MOST_TOKENS = 16
CONFUSED = 0.05
"""From this share of a class on, a wrong prediction is marked."""


class PredictionsPanel(TextPanel):
    DEFAULT_CSS = """
    PredictionsPanel {
        #beside { height: auto; layout: horizontal; display: none; }
        Pictures { margin: 1 0 0 0; }
    }
    """
    WAITING = "no evaluation has been reported yet"

    def __init__(self, directory: Path = Path()) -> None:
        """`directory` has pictures of the worst examples, if there are any."""
        super().__init__()
        self._directory = directory

    def compose(self) -> ComposeResult:
        yield from super().compose()
        with Container(id="beside"):
            yield TextView(id="wrong")
            yield Pictures(self._directory, named=False)

    def _draw(self) -> None:
        super()._draw()
        predictions, shown = self._state.predictions, self._pictures(self._state)
        beside = self.query_one("#beside")
        beside.display = bool(predictions and shown)
        if predictions and beside.display and self.display:
            lines, wrong = _mistakes(self._state, predictions), self.query_one("#wrong", TextView)
            wide = max(line.cell_length for line in lines) + 2
            wrong.styles.width = wide
            wrong.update(lines)
            room = self.outer_size - self.styles.gutter.totals
            self.query_one(Pictures).show(shown, max(LEAST_WIDTH, room.width - wide - 1), room.height)

    @staticmethod
    def _pictures(state: RunState) -> list[Media]:
        """Returns the pictures of the worst examples of the evaluation that is shown."""
        kept = state.media.get(WORST_EXAMPLES)
        step = state.predictions.step if state.predictions else None
        return [file for file in kept.files if file.step == step] if kept else []

    def lines(self, state: RunState, width: int) -> list[Content]:
        predictions = state.predictions
        if predictions is None or not predictions.counts:
            return []
        classes = by_class(predictions)
        right, examples = sum(class_.right for class_ in classes), sum(class_.examples for class_ in classes)
        share = format_percent(right / examples if examples else None, 1)
        called = state.task.labels or "examples"
        when = f"  after step {predictions.step:,}" + (", averaged weights" if state.config.get("ema") else "")
        lines = [Content.assemble((f"{share} of {examples:,} {called} right", "bold"), when)]
        for text in predictions.samples:
            lines += [Content(""), Content.styled("the model writes", MUTED), *_written(text, width)]
        if predictions.samples:
            # Of all bytes that there may be, most are in no text.
            classes = sorted((class_ for class_ in classes if class_.examples), key=lambda class_: -class_.examples)[
                :MOST_TOKENS
            ]
        lines += [Content(""), *_table(predictions, classes, width)]
        return lines if self._pictures(state) else [*lines, *_mistakes(state, predictions)]


def _mistakes(state: RunState, predictions: Predictions) -> list[Content]:
    """Returns which classes were taken for which, and the worst examples."""
    lines, called = list[Content](), state.task.labels or "examples"
    if pairs := confusions(predictions)[:MAX_PAIRS]:
        lines += [Content(""), Content.styled("most often taken for another class", MUTED)]
        longest = max(cell_len(pair.label) for pair in pairs)
        for pair in pairs:
            count = f"{pair.examples:,} ({format_percent(pair.share, 1)})"
            lines.append(Content(f"  {pair.label:>{longest}} → {pair.predicted}  {count}"))
    if predictions.worst:
        lines += [Content(""), Content.styled(f"{called} of the test set with the highest loss", MUTED)]
        rows = [
            (class_name(predictions, example.label), class_name(predictions, example.predicted))
            for example in predictions.worst
        ]
        longest = max(len("true"), *(cell_len(label) for label, _ in rows))
        singular = called.removesuffix("s")
        lines.append(Content.styled(f"  {singular:>8}  {'loss':>8}  {'true'.ljust(longest)}  predicted", MUTED))
        for example, (label, predicted) in zip(predictions.worst, rows, strict=True):
            pad = " " * (longest - cell_len(label))
            lines.append(Content(f"  {example.number:>8}  {example.loss:>8.3g}  {label}{pad}  {predicted}"))
    return lines


def _written(text: str, width: int) -> list[Content]:
    """Returns a text's lines, those that are too long on several."""
    lines = [part for line in sanitize_lines(text) for part in textwrap.wrap(line, width - 2) or [""]]
    return [Content(f"  {line}") for line in lines]


def _table(predictions: Predictions, classes: list[ClassAccuracy], width: int) -> list[Content]:
    """Returns a line per class, with its row of the confusion matrix where all columns fit."""
    names = [class_.name[:MOST_NAME] for class_ in classes]
    first = max(5, *map(cell_len, names))
    cell = 1 + max(len(str(count)) for row in predictions.counts for count in row)
    room = width - first - 10 - 9 - BAR - 3
    shows_matrix = is_matrix(predictions) and cell * len(classes) <= room
    kind = "true" if shows_matrix else "token" if predictions.samples else "class"
    heading = f"{kind:{first}}  {'times' if predictions.samples else 'examples':>8}  accuracy  {' ' * BAR}"
    lines = []
    if shows_matrix:
        heading += "  "
        shift = cell_len(heading)
        heading += "".join(str(label)[-cell + 1 :].rjust(cell) for label in range(len(classes)))
        lines.append(Content.styled(" " * (shift + cell - 1) + "predicted", MUTED))
    lines.append(Content.styled(heading, MUTED))
    for label, (name, class_) in enumerate(zip(names, classes, strict=True)):
        pad = " " * (first - cell_len(name))
        start = f"{name}{pad}  {class_.examples:>8,}  {format_percent(class_.accuracy, 1):>8}  "
        parts: list[Content | tuple[str, str]] = [Content(start), (bar(class_.accuracy or 0.0, BAR), "$primary")]
        if shows_matrix:
            parts.append(Content(" " * (shift - cell_len(start) - BAR)))
            for index, count in enumerate(predictions.counts[label]):
                text = (f"{count}" if count else "·").rjust(cell)
                confused = index != label and class_.examples and count / class_.examples >= CONFUSED
                style = "bold" if index == label else "bold $text-warning" if confused else "" if count else MUTED
                parts.append((text, style))
        lines.append(Content.assemble(*parts))
    return lines
