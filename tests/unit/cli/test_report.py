"""`tuiapp report`: pages that are whole, escaped, and need nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.command_line import Command
from tests.kit.recorded import CONFIG, record
from tuiapp.trainers.contract.events import Alert, AnyEvent, Facts, Metrics, RankFailed
from tuiapp.trainers.contract.media import MediaFolder
from tuiapp.trainers.contract.rundir import RunDir

COMPLETED, FAILED = "20261120T101500-torch-ddp-net-3fa1", "20261120T101400-torch-ddp-net-3fa2"
EVIL = "</pre><script>alert(1)</script>|`*_\x1b]52;c;x\x07&\"'"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, COMPLETED, h.completed())
    record(runs_dir, FAILED, interrupted.failed(), msgspec.structs.replace(CONFIG, learning_rate=0.01))
    described = {
        "host": "gpubox",
        "versions": {"torch": "2.11.0"},
        "gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}],
        "command_line": ["tuiapp", "run", "a b"],
    }
    (runs_dir / COMPLETED / "environment.json").write_text(json.dumps(described))
    return runs_dir


def test_one_run_as_html(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    done = tuiapp("report", COMPLETED, "-o", tmp_path / "report.html")
    assert (done.code, done.out, done.err) == (0, "", f"1 run: {tmp_path / 'report.html'}\n")
    text = (tmp_path / "report.html").read_text()
    _check_page(text)
    for words in ("✓ completed", "99.89 %", "2 × NVIDIA H200", "2.11.0", "tuiapp run &#x27;a b&#x27;", "learning_rate"):
        assert words in text
    names = [_title(figure) for figure in _figures(text)]
    assert names[:3] == ["loss", "accuracy", "examples/s"]
    assert "test loss" not in names
    assert {"step time", "learning rate"} <= {*names}


def test_curves_are_at_their_values(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    values: list[float | None] = [4.0, 3.0, None, 1.0, 0.0]
    metrics = [Metrics(rank=0, first_step=1, values={"ppl": values}, **h.at(2))]
    metrics.append(Metrics(rank=0, first_step=3, values={"test/ppl": [2.0]}, **h.at(3)))
    record(runs_dir, COMPLETED, [h.started(1), *metrics])
    tuiapp("report", "latest", "-o", tmp_path / "report.html")
    (figure,) = _figures((tmp_path / "report.html").read_text())
    curve, beside = (path.get("d", "") for path in figure.iter(f"{SVG}path") if "curve" in path.get("class", ""))
    points = [round(float(number)) for number in re.findall(r"[\d.]+", curve)]
    # From 1 to 5 and from 0 to 4, in a frame from (64, 40) to (628, 232); step 3 is no number: the line is broken.
    assert points == [64, 40, 204, 88, 488, 184, 628, 232]
    assert re.sub(r"[\d. ]", "", curve) == "MLML"
    assert beside.startswith("M346.0 136.0")


def test_several_runs_as_html(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    assert tuiapp("report", COMPLETED, FAILED, "-o", tmp_path / "report.html").code == 0
    text = (tmp_path / "report.html").read_text()
    _check_page(text)
    assert text.index("<th>learning_rate</th><td>0.001</td><td>0.01</td>") < text.index("<th>dataset</th>")
    assert "Failure of b" in text
    assert "torch_ddp.py&quot;, line 84" in text
    loss = _figures(text)[0]
    curves = [path for path in loss.iter(f"{SVG}path") if "curve" in path.get("class", "")]
    assert {path.get("class", "").split()[1] for path in curves} == {"c0", "c1"}
    assert {path.get("stroke-dasharray") for path in curves} == {None, "7 3"}


def test_seeds_keep_their_groups_and_many_runs_are_rows(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    ids = [f"20261120T10150{n}-torch-ddp-net-{n:04x}" for n in range(5)]
    for n, run_id in enumerate(ids):
        config = msgspec.structs.replace(CONFIG, seed=n % 3, learning_rate=0.1 if n < 3 else 0.01)
        record(runs_dir, run_id, h.completed(), config)
    for name in ("report.html", "report.md"):
        assert tuiapp("report", *ids, "-o", tmp_path / name).code == 0
    text = (tmp_path / "report.md").read_text()
    groups = text[text.index("## Groups, by seed") : text.index("## Curves")]
    assert "| a b c " in groups
    assert "| d e " in groups
    result = text[text.index("## Result") : text.index("## Groups")]
    assert [line.split()[1] for line in result.splitlines() if line.startswith("| ")][2:] == ["a", "b", "c", "d", "e"]
    _check_page((tmp_path / "report.html").read_text())
    assert "<h2>Groups, by seed</h2>" in (tmp_path / "report.html").read_text()


def test_markdown_with_figures_beside_it(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    assert tuiapp("report", COMPLETED, FAILED, "-o", target).code == 0
    text = target.read_text()
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", text)
    assert pictures[0] == "report-figures/00-loss.svg"
    for picture in pictures:
        svg = ElementTree.fromstring((tmp_path / picture).read_text())
        assert "prefers-color-scheme:dark" in (svg.findtext(f"{SVG}style") or "")
    assert "| learning\\_rate | 0.001 | 0.01 |" in text
    assert "★ a: highest test/accuracy" in text
    assert "    RuntimeError: CUDA error" in text
    assert tuiapp("report", COMPLETED, "-o", target).code == 2
    assert tuiapp("report", COMPLETED, "-o", target, "--force").code == 0
    assert sorted(name for name in os.listdir(tmp_path) if name != "home") == ["report-figures", "report.md"]


def test_the_last_of_each_name_is_in_the_page(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    run = RunDir(runs_dir / COMPLETED)
    events = [*h.media(run), *MediaFolder(run).write(EVIL, 1, [("text", EVIL.encode(), EVIL)])]
    record(runs_dir, COMPLETED, [*h.running(), *events, h.ended("completed", 9.0)])
    (run.media / next(event.file for event in events if event.name == "mask" and event.step == 120)).unlink()
    assert tuiapp("report", COMPLETED, "-o", tmp_path / "report.html").code == 0
    text = (tmp_path / "report.html").read_text()
    _check_page(text)
    assert text.count("data:image/png;base64,") == 1
    assert [words in text for words in ("val/sample, step 120. a caption", "reply, step 120", "mask")] == [
        True,
        True,
        False,
    ]
    assert "Made glorious summer</pre>" in text


@pytest.mark.parametrize("ending", ["html", "md"])
def test_hostile_text_stays_text(tuiapp: Command, runs_dir: Path, tmp_path: Path, ending: str) -> None:
    values: dict[str, list[float | None]] = {EVIL: [1.0], "a/../../x": [None], "": [2.0]}
    events: Sequence[AnyEvent] = [
        h.started(),
        Facts(name=EVIL, config={EVIL: EVIL}, summary={EVIL: [EVIL]}, **h.at(1)),
        Metrics(rank=0, first_step=1, values=values, **h.at(2)),
        Alert(kind="nan", text=EVIL, **h.at(3)),
        RankFailed(rank=0, error=EVIL, traceback=EVIL, **h.at(4)),
        h.ended("failed", 5.0, reason=EVIL, rank=0),
    ]
    script = msgspec.structs.replace(CONFIG, backend="script", script="/x/<b>.py")
    run: RunDir = record(runs_dir, COMPLETED, events, script)
    run.environment.write_text(json.dumps({"host": EVIL, "versions": {EVIL: EVIL}, "gpus": 7, "command_line": None}))
    assert tuiapp("report", "latest", "-o", tmp_path / f"report.{ending}").code == 0
    text = (tmp_path / f"report.{ending}").read_text()
    assert "\x1b" not in text
    if ending == "html":
        _check_page(text)
    else:
        # In a block of code nothing is a tag; elsewhere a backslash makes it text.
        assert not re.search(r"(?<!\\)<", re.sub(r"(?m)^    .*$", "", text))
        assert sorted(path.suffix for path in (tmp_path / "report-figures").iterdir()) == [".svg", ".svg"]


class _Page(HTMLParser):
    """Collects what a page would load or run, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "object", "base", "form", "a"):
            self.bad.append(tag)
        held = "data:image/png;base64,"
        self.bad += [
            name
            for name, value in attrs
            if name.startswith("on") or name == "href" or (name == "src" and not str(value).startswith(held))
        ]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"/{tag}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()


def _check_page(text: str) -> None:
    page = _Page()
    page.feed(text)
    page.close()
    assert (page.bad, page.open) == ([], [])
    assert "@import" not in text
    assert "url(" not in text
    assert "prefers-color-scheme:dark" in text


def _figures(text: str) -> list[ElementTree.Element]:
    found = re.findall(r'<div>(<svg class="figure".*?</svg>)</div>', text, re.DOTALL)
    return [ElementTree.fromstring(one) for one in found]


def _title(figure: ElementTree.Element) -> str:
    return figure.findtext(f"{SVG}title") or ""
