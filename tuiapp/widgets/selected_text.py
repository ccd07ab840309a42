"""Text of drawn lines that the user has selected with the mouse."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget


def mark_selection(widget: Widget, strip: Strip, line: int) -> Strip:
    """Styles the selected part of a widget's line, and makes all of it selectable."""
    selection = widget.text_selection
    if selection is not None and (span := selection.get_span(line)) is not None:
        # Textual counts characters; -1 is the line's end.
        start, end = (cell_len(strip.text[: place if place >= 0 else None]) for place in span)
        style = widget.screen.get_component_rich_style("screen--selection")
        chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
        strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
    return strip.apply_offsets(0, line)
