"""What an event looks like as a line, and what is made of lines that are none."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from tests.kit.hostile import poison
from tests.kit.reported import evaluation_event, step_event
from tests.kit.specimens import EVENT_TYPES, specimen
from tuiapp.trainers.contract.events import Alert, DeviceSample, Event, Facts, Metrics, Phase, decode, encode
from tuiapp.trainers.contract.metrics import LOSS, TEST_LOSS


@pytest.mark.parametrize("kind", EVENT_TYPES)
class TestEveryType:
    def test_comes_back_as_it_went(self, kind: type[Event]) -> None:
        event = specimen(kind)
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        assert all(getattr(event, name) != default for name, default in defaults.items())
        assert decode(encode(event)) == event

    def test_can_be_written_whatever_its_texts_are(self, kind: type[Event]) -> None:
        line = encode(poison(specimen(kind)))
        assert decode(line) is not None
        line.decode()

    def test_is_one_line_with_its_type(self, kind: type[Event]) -> None:
        line = encode(specimen(kind))
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert b"\r" not in line
        assert json.loads(line)["type"] == kind.__struct_config__.tag

    def test_is_nothing_when_it_is_torn(self, kind: type[Event]) -> None:
        line = encode(specimen(kind))
        for end in range(len(line) - 1):
            assert decode(line[:end]) is None
        for start in range(1, len(line) - 1):
            assert decode(line[start:]) is None

    def test_takes_fields_of_a_newer_version(self, kind: type[Event]) -> None:
        line = encode(specimen(kind)).replace(b"{", b'{"field_of_the_future": [1, {"a": null}], ', 1)
        assert decode(line) == specimen(kind)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"7",
        b"{}",
        b'{"type": "event-of-the-future", "rank": 0}',
        b'{"type": 5}',
        b'{"type": "phase", "rank": "zero", "phase": "training"}',
        b'{"type": "phase", "rank": 0, "phase": "dreaming"}',
        b'{"type": "phase", "rank": 0}',
        b'{"type": "log", "rank": 0, "stream": "stdout", "text": "\xff\xfe"}',
        b'{"type": "log", "rank": 0, "stream": "stdout", "text": "\\ud800"}',
        b'{"type": "phase", "rank": 1e400, "phase": "training"}',
        b'{"type": "run-ended", "summary": ' + b"[" * 100_000,
        b"\x00" * 4096,
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {}}',
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {"loss": []}}',
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {"loss": [1.0], "lr": []}}',
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {"loss": [1.0]}, "counts": [1, 1]}',
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {"loss": [1.0]}, "counts": [0]}',
        b'{"type": "metrics", "rank": 0, "first_step": 1, "values": {"loss": [1.0]}, "counts": [2147483648]}',
        b'{"type": "metrics", "rank": 0, "first_step": -1, "values": {"loss": [1.0]}}',
        b'{"type": "metrics", "rank": 0, "first_step": 9007199254740993, "values": {"loss": [1.0]}}',
        b'{"type": "metrics", "rank": -1, "first_step": 1, "values": {"loss": [1.0]}}',
        b'{"type": "metrics", "rank": 4096, "first_step": 1, "values": {"loss": [1.0]}}',
    ],
)
def test_what_is_no_event_of_this_version(line: bytes) -> None:
    assert decode(line) is None


def test_every_event_says_when_it_happened() -> None:
    first, second = Phase(rank=0, phase="training"), Phase(rank=0, phase="done")
    assert 0 < first.time <= second.time
    assert 0 < first.mono <= second.mono
    assert b'"time"' in encode(first)
    assert b'"mono"' in encode(first)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(value: float) -> None:
    steps = step_event(0, 1, [1.0, value])
    evaluation = evaluation_event(1, value, 0.5)
    sample = DeviceSample(index=0, uuid="u", name="n", power_w=value)
    for event in (steps, evaluation, sample):
        json.loads(encode(event), parse_constant=lambda constant: pytest.fail(f"no JSON: {constant}"))
    came = decode(encode(steps))
    assert isinstance(came, Metrics)
    assert came.values[LOSS] == [1.0, None]
    came_evaluation, came_sample = decode(encode(evaluation)), decode(encode(sample))
    assert isinstance(came_evaluation, Metrics)
    assert came_evaluation.values[TEST_LOSS] == [None]
    assert isinstance(came_sample, DeviceSample)
    assert came_sample.power_w is None


def test_text_that_is_no_utf8_is_escaped_and_other_objects_are_text() -> None:
    came = decode(encode(Alert(kind="x", text="no file \udcff, \ud800 and é\n")))
    assert isinstance(came, Alert)
    assert came.text == "no file \\udcff, \\ud800 and é\n"
    came_facts = decode(encode(Facts(config={"a\udcff": {1: {"b\udc80": 2 + 1j}}, "long": [2**80]})))
    assert isinstance(came_facts, Facts)
    assert came_facts.config == {"a\\xff": {"1": {"b\\x80": "(2+1j)"}}, "long": [2**80]}
