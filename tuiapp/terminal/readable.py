"""Makes every theme's text readable by raising its contrast where it is too low."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.color import WHITE, Color

LEAST_CONTRAST = 4.5
"""For text: WCAG 2.2, success criterion 1.4.3."""

LEAST_BORDER = 3.0
"""For the border of an input: criterion 1.4.11."""

GROUNDS = ("background", "surface", "panel")
TEXTS = ("foreground", "text-primary", "text-secondary", "text-accent", "text-success", "text-warning", "text-error")

MUTED = ("text-muted", "foreground-muted")
"""Secondary text. Themes define it as a share of the background's opposite; here it is a colour, for all uses."""

ON_THEIR_OWN = {
    "footer-key-foreground": "footer-background",
    "footer-description-foreground": "footer-background",
    "block-cursor-foreground": "block-cursor-background",
}
"""Text with its own background."""

MUTED_SHARE = 0.65
STEP = 0.04


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns a theme's variables with the colours of texts and of inputs' borders adjusted."""
    grounds = [Color.parse(variables[name]) for name in GROUNDS]
    changed = {name: _moved(Color.parse(variables[name]), grounds) for name in TEXTS}
    muted = grounds[0].blend(changed["foreground"], MUTED_SHARE, 1)
    changed |= dict.fromkeys(MUTED, _moved(muted, grounds))
    changed["border-blurred"] = _moved(Color.parse(variables["border-blurred"]), grounds, LEAST_BORDER)
    for text, background in ON_THEIR_OWN.items():
        ground = grounds[0] + Color.parse(variables[background])
        # "auto 87%" is a share of black or white, whichever reads better.
        color = ground.get_contrast_text(1) if "auto" in variables[text] else Color.parse(variables[text])
        changed[text] = _moved(color, [ground])
    return {**variables, **{name: color.hex for name, color in changed.items()}}


def _moved(color: Color, grounds: Sequence[Color], least: float = LEAST_CONTRAST) -> Color:
    """Lightens or darkens a colour until it has that contrast to all backgrounds."""
    goal = WHITE if contrast(WHITE, grounds[0]) > contrast(Color(0, 0, 0), grounds[0]) else Color(0, 0, 0)
    moved, share = color, 0.0
    while min(contrast(moved, ground) for ground in grounds) < least and share < 1:
        share = min(1.0, share + STEP)
        moved = color.blend(goal, share, 1)
    return moved


def contrast(first: Color, second: Color) -> float:
    """Returns WCAG's contrast ratio, from 1 to 21."""
    dark, light = sorted((_luminance(first), _luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (color.r / 255, color.g / 255, color.b / 255)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
