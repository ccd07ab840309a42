"""A report as one HTML page: no script, nothing loaded from elsewhere, light or dark as the reader's system is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from tuiapp.library.report import (
    Reported,
    Rows,
    best_words,
    config_rows,
    environment_rows,
    figures,
    group_rows,
    result_rows,
    turned,
    whose,
)
from tuiapp.trainers.state.text import format_clock, sanitize, sanitize_lines
from tuiapp.view import figure
from tuiapp.view.measured import Sheet

STYLE = """
:root{color-scheme:light dark;--text:#222;--soft:#666;--line:#ddd;--ground:#fff;--panel:#f7f7f8;--bad:#a3142c}
@media(prefers-color-scheme:dark){
:root{--text:#e6e6e6;--soft:#a5a5a5;--line:#3a3d42;--ground:#16181b;--panel:#1e2125;--bad:#ff8b98}}
body{margin:0 auto;max-width:84rem;padding:2rem 1.5rem 4rem;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2.4rem 0 .8rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.bad{color:var(--bad)}.state{white-space:nowrap}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26rem,100%),1fr));gap:1rem}
.figures div{border:1px solid var(--line);border-radius:6px;padding:.6rem .6rem .2rem;background:var(--panel)}
.figures svg{display:block;width:100%;height:auto}
.figures img{display:block;max-width:100%;min-width:8rem;image-rendering:pixelated}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.25rem 1.6rem .25rem 0;border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft);white-space:nowrap}thead th{color:var(--text);font-weight:600}
td{min-width:6rem}.runs td,.runs thead th{text-align:right}
pre{overflow-x:auto;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.8rem;
font:13px/1.45 ui-monospace,monospace}
ul{padding-left:1.2rem}summary{cursor:pointer;color:var(--soft)}
@media print{body{max-width:none;padding:0}pre{white-space:pre-wrap}.figures div{break-inside:avoid}}
"""


def to_html(runs: Sequence[Reported], written: str, study: Sheet | None = None, picture: str = "") -> str:
    """Returns the page of a report; `written` says when.

    That of a study has its table first, with a picture of it if there is one; `runs` are then those whose curves stand
    for all.
    """
    alone = len(runs) == 1
    title = study.title if study else runs[0].title if alone else f"{len(runs)} runs"
    letters = [] if alone else [run.heading for run in runs]
    differing, same, defaults = config_rows(runs)
    pictures = "".join(f"<div>{picture}</div>" for _, picture in figures(runs))
    body = [
        f"<h1>{escape(title)}</h1>",
        *([_study(study, picture)] if study else []),
        *(_heading(run, alone) for run in runs),
        _section("Result", _table(result_rows(runs), letters) + _note(best_words(runs))),
        _section("Groups, by seed", _table(*group_rows(runs))),
        *(_summary(run, alone) for run in runs),
        *(_failure(run, alone) for run in runs),
        _section("Curves", f'<div class="figures">{pictures}</div>' if pictures else "<p>No metric was reported.</p>"),
        *(_media(run, alone) for run in runs),
        _section("Configuration" if alone else "Configuration keys that differ", _table(differing or same, letters))
        if alone or differing
        else "",
        "" if alone else _section("Configuration keys that are the same", _table(_first(same), [])),
        _folded(f"{len(defaults)} keys at the library's defaults", _table(_first(defaults), [])),
        _section("Environment", _table(environment_rows(runs), letters)),
        *(_alerts(run, alone) for run in runs),
        f'<p class="soft">Written {escape(written)}. Curves are means over the ranks'
        f"{', the band their least and greatest values' if alone else ''}.</p>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{figure.style()}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _study(study: Sheet, picture: str) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in study.heads)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in study.cells)
    notes = "".join(f"<li>{escape(note)}</li>" for note in study.notes)
    drawn = f'<div class="figures"><div>{picture}</div></div>' if picture else ""
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f"<section>{table}<ul>{notes}</ul>{drawn}</section>"


def _heading(run: Reported, alone: bool) -> str:
    bad = " bad" if run.info.status in ("failed", "lost") else ""
    label = "" if alone else f"{figure.swatch(run.index)} <b>{run.letter}</b> "
    named = f"{escape(run.title)} " if not alone and run.title != run.run_id else ""
    id_ = "" if alone and run.title == run.run_id else f'{named}<span class="soft">{escape(run.run_id)}</span> '
    remarks = f' <span class="soft">{escape(" · ".join(run.remarks))}</span>' if run.remarks else ""
    return f'<p>{label}{id_}<span class="state{bad}">{escape(run.status)}</span>{remarks}</p>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def _note(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>' if text else ""


def _first(rows: Rows) -> Rows:
    return [(name, values[:1]) for name, values in rows]


def _table(rows: Rows, letters: Sequence[str]) -> str:
    if not rows:
        return ""
    rows, letters = turned(rows, letters)
    head = "".join(f"<th>{escape(letter)}</th>" for letter in letters)
    head = f"<thead><tr><th></th>{head}</tr></thead>" if letters else ""
    lines = [
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for name, values in rows
    ]
    kind = ' class="runs"' if letters else ""
    return f'<div class="scroll"><table{kind}>{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _summary(run: Reported, alone: bool) -> str:
    return _section(f"Summary{whose(run, alone)}", _table([(key, (text,)) for key, text in run.summary], []))


def _media(run: Reported, alone: bool) -> str:
    parts = []
    for medium, data in run.media:
        if medium.kind == "text":
            held = f"<pre>{escape(chr(10).join(sanitize_lines(data.decode(errors='replace'))))}</pre>"
        else:
            held = f'<img alt="" src="data:image/png;base64,{b64encode(data).decode()}">'
        rank = f", rank {medium.rank}" if medium.rank else ""
        caption = f"{sanitize(medium.name)}, step {medium.step:,}{rank}. {sanitize(medium.caption)}"
        parts.append(f'<div>{held}<p class="soft">{escape(caption)}</p></div>')
    content = f'<div class="figures">{"".join(parts)}</div>' if parts else ""
    return _section(f"Pictures and texts{whose(run, alone)}", content)


def _failure(run: Reported, alone: bool) -> str:
    if run.failure is None:
        return ""
    sentence, lines = run.failure
    text = f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""
    return _section(f"Failure{whose(run, alone)}", f'<p class="bad">{escape(sentence)}</p>{text}')


def _alerts(run: Reported, alone: bool) -> str:
    lines = [f"<li>{format_clock(alert.time)} {escape(sanitize(alert.text))}</li>" for alert in run.alerts]
    return _section(f"Alerts{whose(run, alone)}", f"<ul>{''.join(lines)}</ul>" if lines else "")
