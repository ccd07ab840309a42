"""What the environment tells of a terminal."""

from __future__ import annotations

from collections.abc import Mapping


def wants_ascii(setting: str, environment: Mapping[str, str]) -> bool:
    """Whether to draw with ASCII alone.

    Args:
        setting: on, off, or auto, which looks at the environment: the kernel's own console has few characters, and a
            locale that is set to C or to another encoding says that the terminal has no UTF-8.
        environment: The process's.
    """
    if setting != "auto":
        return setting == "off"
    if environment.get("TERM", "") in ("linux", "dumb", "vt100", "vt220"):
        return True
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if locale == "C.UTF-8" and not environment.get("LC_ALL"):
        # Python itself puts this into LC_CTYPE where the locale is C (PEP 538).
        locale = environment.get("LANG") or locale
    if not locale:
        return False
    encoding = locale.partition(".")[2].partition("@")[0].lower().replace("-", "")
    return locale in ("C", "POSIX") or (bool(encoding) and encoding != "utf8")
