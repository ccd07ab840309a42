"""What the panel shows of an evaluation on a text."""

from __future__ import annotations

from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.contract.events import Predictions
from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.predictions_panel import MOST_TOKENS, PredictionsPanel


def test_of_a_text_it_shows_what_the_model_writes_and_the_most_frequent_tokens() -> None:
    counts = [[0, 0] for _ in range(256)]
    counts[ord("e")], counts[ord(" ")] = [30, 70], [150, 50]
    for number in range(MOST_TOKENS):
        counts[number] = [0, 1]
    found = Predictions(
        step=29,
        counts=counts,
        names=list(find_dataset("shakespeare").class_names),
        samples=["Now is the winter of our discontent\n\x1b[31mMade\nglorious ", "summer"],
    )
    state = RunState(planned={"dataset": "shakespeare", "context": 128}, predictions=found)
    lines = [line.plain.rstrip() for line in PredictionsPanel().lines(state, 30)]
    assert lines[:10] == [
        "57.0 % of 316 tokens right  after step 29",
        "",
        "the model writes",
        "  Now is the winter of our",
        "  discontent",
        "  Made",
        "  glorious",
        "",
        "the model writes",
        "  summer",
    ]
    assert lines[11].split() == ["token", "times", "accuracy"]
    assert [line.split()[:4] for line in lines[12:14]] == [["space", "200", "75.0", "%"], ["e", "100", "30.0", "%"]]
    assert len(lines) == 12 + MOST_TOKENS
