"""What is masked of a configuration before it is shared."""

from __future__ import annotations

import pytest

from tuiapp.trainers.config.secrets import is_secret, mask_arguments, mask_environment, mask_values


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("--api-key", "WANDB_API_KEY", "apikey", "hf_token", "TOKEN", "--password", "auth")),
        *((name, True) for name in ("AWS_SECRET_ACCESS_KEY", "client-secret", "db.password", "SSH_KEY", "credentials")),
        *((name, False) for name in ("tokens", "max_tokens", "tokenizer", "pad_token", "eos_token", "label_key")),
        *((name, False) for name in ("author", "key", "lr", "", "--", "monkey", "secretary")),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_secret(name) == secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("--lr 0.1 --name 'two words'", "--lr 0.1 --name 'two words'"),
        ("--api-key abc --lr 0.1", "--api-key *** --lr 0.1"),
        ("--api-key=abc", "--api-key=***"),
        ("TOKEN=abc model.hub_token=abc lr=0.1", "TOKEN=*** model.hub_token=*** lr=0.1"),
        # A flag that takes nothing.
        ("--auth --lr 0.1", "--auth --lr 0.1"),
        ("--db postgres://ada:abc@host/x", "--db postgres://ada:***@host/x"),
        ("'unclosed --api-key abc", "***"),
    ],
)
def test_arguments(text: str, masked: str) -> None:
    assert mask_arguments(text) == masked


def test_values() -> None:
    assert mask_environment("A=1 B='x y'") == "A=*** B=***"
    values = {
        "environment": "A=1",
        "arguments": "--token abc",
        "lr": 0.1,
        "hub": {"api_key": "abc", "name": "x"},
        "auth": "",
    }
    assert mask_values(values) == {
        "environment": "A=***", "arguments": "--token ***", "lr": 0.1, "hub": {"api_key": "***", "name": "x"},
        "auth": "",
    }  # fmt: skip
