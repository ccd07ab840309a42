"""Masks what must not leave the machine in what is made to be shared: reports, exports, what is printed.

The run directory itself keeps the values, which a resume needs. What views know of a run's configuration is masked
(`known_values`), so that none of them has to think of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

MASK = "***"

_SECRET = re.compile(
    r"(^|[_.-])(token|secret|password|passwd|passphrase|credentials?|auth|api_?key"
    r"|(access|account|auth|client|license|private|secret|ssh)_key)$"
)
_SPECIAL_TOKEN = re.compile(r"(^|[_.-])(bos|cls|eos|mask|pad|sep|unk)_token$")
"""What tokenizers call some of their words."""
_URL_PASSWORD = re.compile(r"(://[^:/@\s]+:)[^@\s]+@")


class Masked(str):
    """What is shown in a secret's place; equal to another if the secrets are."""

    __slots__ = ("_secret",)
    _secret: object

    def __new__(cls, text: str, secret: object) -> Masked:
        masked = super().__new__(cls, text)
        masked._secret = secret
        return masked

    def __eq__(self, other: object) -> bool:
        return self._secret == other._secret if isinstance(other, Masked) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Returns whether a value of that name, as of an option, a variable or a key, is one to keep to oneself."""
    plain = name.lstrip("-").lower().replace("-", "_")
    return bool(_SECRET.search(plain)) and not _SPECIAL_TOKEN.search(plain)


def mask_words(words: Iterable[str]) -> Iterator[str]:
    """Yields the words of a command line with `MASK` for `--api-key X`, `TOKEN=X` and passwords in URLs."""
    follows = False
    for word in words:
        name, equals, value = word.partition("=")
        if follows and not word.startswith("-"):
            yield MASK
        elif name == "environment" and equals:
            yield f"environment={mask_environment(value)}"
        elif name == "arguments" and equals:
            yield f"arguments={mask_arguments(value)}"
        elif equals and is_secret(name):
            yield f"{name}={MASK}"
        else:
            yield _URL_PASSWORD.sub(rf"\1{MASK}@", word)
        follows = word.startswith("-") and not equals and is_secret(word)


def mask_arguments(text: str) -> str:
    """Masks a line as of a shell; what is no such line is masked whole."""
    try:
        words = shlex.split(text)
    except ValueError:
        return MASK
    masked = [*mask_words(words)]
    # What is masked need not be quoted for a shell.
    return text if masked == words else " ".join(word if MASK in word else shlex.quote(word) for word in masked)


def mask_environment(text: str) -> str:
    """Masks the values of `A=1 B='x y'`, all of them."""
    try:
        return " ".join(f"{word.partition('=')[0]}={MASK}" for word in shlex.split(text))
    except ValueError:
        return MASK


def mask_values(values: Mapping[str, object]) -> dict[str, object]:
    """Masks a configuration's values, those of a script's own keys among them: with a text's `Masked` in its place."""
    masked = dict(values)
    for key, value in values.items():
        if (shown := _mask_value(key, value)) is not value:
            masked[key] = Masked(shown, value) if isinstance(shown, str) else shown
    return masked


def _mask_value(key: str, value: object) -> object:
    """Returns the value itself if there is nothing to mask."""
    if is_secret(key):
        return value if value in (None, "") or isinstance(value, bool | Masked) else MASK
    if isinstance(value, str):
        return _mask_text(key, value) if value and not isinstance(value, Masked) else value
    if isinstance(value, dict):
        return {name: _mask_value(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple) and value:
        return type(value)(_mask_value(key, item) for item in value)
    return value


def _mask_text(key: str, text: str) -> str:
    if key == "environment":
        masked = mask_environment(text)
    elif key == "arguments":
        masked = mask_arguments(text)
    else:
        masked = _URL_PASSWORD.sub(rf"\1{MASK}@", text) if "://" in text else text
    return masked if masked != text else text
