"""runs/<id>/report.html: the run as one file for a browser, with nothing fetched and nothing from outside executed.

The text is written here, escaped; curves are drawn by the live page's own code, which lies in the file as one script.
The page's policy names that script by its hash, so a line of a log that looks like a script stays a line, even where
we should have failed to escape it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from flodl_window.aftermath import account as accounts
from flodl_window.aftermath import figures, run_files
from flodl_window.aftermath.account import Account
from flodl_window.aftermath.causes import Finding
from flodl_window.aftermath.listing import span
from flodl_window.aftermath.masking import Mask, secret_values
from flodl_window.aftermath.run_files import Json, RunFiles
from flodl_window.live import joined
from flodl_window.live.tails import harmless
from flodl_wire import environ
from flodl_wire.faults import Broken

NAME = "report.html"
LINES = 50
MOST_RANKS = 2000  # rows of the table
_HERE = Path(__file__).parent
_MODULES = ("text.js", "store.js", "charts.js", "timeline.js")
_TITLES = {
    "done": "Done",
    "degraded": "Done, degraded",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "crashed": "Crashed",
    "running": "Still running",
    "unknown": "Not known",
}


def write(path: Path, target: Path | None = None) -> Path:
    """Read the run's folder `path`, write its report (there, or to `target`), whole or not at all. Raises Broken."""
    target = target or path / NAME
    text = render(run_files.read(path))
    new = target.with_name(f".{target.name}.new")
    try:
        new.write_text(text, encoding="utf-8", errors="replace")
        new.replace(target)
    except OSError as err:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        fix = "make room or rights there, or name another file with -o"
        raise Broken("no-report", f"cannot write {target}", err.strerror or str(err), fix) from None
    return target


def render(files: RunFiles) -> str:
    """The whole file."""
    named = {name: value for name, value in os.environ.items() if not name.startswith(environ.INTERNAL_PREFIX)}
    mask = Mask(secret_values(named))
    told = accounts.make(files, lambda name: run_files.last_lines(files.path / "log" / f"{name}.log", accounts.LINES))
    history = run_files.history(files.path)
    drawn = figures.document(history, run_files.metrics(files.path), files.result)
    drawn["hosts"] = {mask.known(str(name)): value for name, value in drawn["hosts"].items()}
    voices = _voices(told, mask)  # of a failure they are what is read next
    body = "".join(
        [
            _head(files, told, mask),
            _cause(told, mask),
            voices if told.end in ("failed", "crashed") else "",
            _figures(files, told),
            '<section id="charts" hidden><h2>Training</h2><div class="charts"></div></section>',
            '<section id="timeline" hidden><h2>Last windows, by rank</h2><div class="keys" aria-hidden="true">'
            '<span class="key busy">busy</span><span class="key waiting">waiting</span>'
            '<span class="key averaging">averaging</span></div><div class="lanes"></div></section>',
            _ranks(files, told),
            _setting(files, told, mask),
            _hosts(told),
            '<section id="hosts" hidden><h2>Load of the hosts</h2><div class="charts small"></div></section>',
            _marks(history, mask),
            voices if told.end not in ("failed", "crashed") else "",
            "</main>",
        ]
    )
    script = joined.script(*(joined.PAGE / name for name in _MODULES), _HERE / "report.js")
    policy = (
        f"default-src 'none'; script-src {joined.source(script)}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    style = joined.style(_HERE / "report.css")
    data = json.dumps(drawn, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="data:,">\n<title>{_text(files.run)} – flodl</title>\n<style>{style}</style>\n</head>\n'
        f'<body class="report">\n{body}\n<footer><p class="quiet">Written by flodl from {_text(str(files.path))}.'
        " Nothing in this file reaches out.</p></footer>\n"
        f'<script type="application/json" id="document">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _text(text: Any, most: int = 2000) -> str:
    """Somebody's words, harmless, escaped, and kept to themselves in their direction."""
    return f"<bdi>{escape(harmless(str(text), most))}</bdi>"


def _head(files: RunFiles, told: Account, mask: Mask) -> str:
    state = {"crashed": "failed", "degraded": "done", "running": "training"}.get(told.end, told.end)
    at = told.opened.get("at")
    when = time.strftime("%d %b %Y, %H:%M:%S", time.localtime(at)) if isinstance(at, (int, float)) else ""
    mode = files.result.get("mode") or files.state.get("mode") or ""
    return (
        f'<header class="top"><div class="bar"><p class="name"><span class="mark" aria-hidden="true"></span>flodl</p>'
        f'<p class="run">{_text(files.run)} <span class="quiet">{_text(mode)}</span></p>'
        f'<p class="when">{when}</p></div>'
        f'<div class="now"><h1><span class="phase" data-phase="{state}">{_TITLES[told.end]}</span></h1>'
        f'<p class="why">{_text(mask.text(told.sentence))}</p></div></header><main id="main" data-phase="{state}">'
    )


def _cause(told: Account, mask: Mask) -> str:
    first = told.first
    if told.end not in ("failed", "crashed") or (first is None and not told.tries):
        return ""
    parts = ['<section id="verdict" class="failed"><h2>What broke first</h2>']
    if first is not None and told.end == "failed":
        parts.append(f'<p class="cause">{_text(mask.text(first.what))}</p>')
        parts += [f"<p>{_text(mask.text(line))}</p>" for line in (first.why, first.meaning, told.causes.note) if line]
    parts.append(_list("What to try", (mask.text(line) for line in told.tries)))
    parts.append(_list("Before it, and survived", map(_finding, told.causes.before[-20:])))
    parts.append(_list("What followed from it", map(_finding, told.causes.after[:20])))
    return "".join(parts) + "</section>"


def _finding(each: Finding) -> str:
    return f"{each.at:.1f} s: {each.what}" + (f": {each.why}" if each.why else "")


def _list(title: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<h3>{title}</h3><ul>{items}</ul>" if items else ""


def _figures(files: RunFiles, told: Account) -> str:
    result = files.result
    resumed = bool(result.get("resumed"))
    cells: list[tuple[str, str, str]] = []

    def add(name: str, value: float | None, form: str, unit: str = "") -> None:
        if value is not None:
            cells.append((name, form.format(value), unit))

    epochs = figures.rows(result.get("epochs"))
    if wall := figures.number(result.get("wall_s")):
        cells.append(("trained for", span(wall), ""))
    add("together", figures.number(result.get("samples_per_s")) or None, "{:,.0f}", "samples/s")
    add("samples", figures.number(result.get("samples")) or None, "{:,.0f}", "in this run" if resumed else "")
    add("epochs", float(len(epochs)) if epochs else None, "{:.0f}", "in all" if resumed else "")
    if epochs:
        add("loss", figures.number(epochs[-1].get("loss")), "{:.4g}")
    for name, value in ((epochs[-1].get("eval") or {}) if epochs else {}).items():
        add(str(name), figures.number(value), "{:.4g}")
    if len(figures.rows(result.get("ranks"))) > 1:
        add("balance", figures.number(result.get("balance")), "{:.2f}")
        add("averaging", (figures.number(result.get("sync_share")) or 0.0) * 100, "{:.1f} %", "of the time")
    add("averages", figures.number(result.get("rounds")) or None, "{:,.0f}")
    if not cells:
        return ""
    boxes = "".join(
        f"<div><dt>{_text(name, 60)}</dt><dd>{escape(value)}{f'<small>{unit}</small>' if unit else ''}</dd></div>"
        for name, value, unit in cells[:16]
    )
    compared = ""
    if (one := figures.alone(result)) is not None:
        wall = figures.number(result.get("wall_s")) or 0.0
        compared = (
            f'<p id="alone">On the fastest rank alone (rank {one.rank} on {_text(one.host)}, {one.samples_per_s:,.0f}'
            f" samples/s while busy) the same samples would have taken about {span(one.wall_s)}; together it was"
            f" {span(wall)}, {one.times:.2f} times as fast.</p>"
        )
    return f'<section id="figures"><dl class="figures">{boxes}</dl>{compared}</section>'


def _ranks(files: RunFiles, told: Account) -> str:
    done = _by_rank(files.result.get("ranks"))
    lives = _by_rank(files.state.get("ranks"))
    numbers = sorted({*done, *lives})[:MOST_RANKS]
    if not numbers:
        return ""
    total = sum(figures.number(rank.get("samples")) or 0.0 for rank in done.values()) or 1.0
    rows = []
    for number in numbers:
        rank, life = done.get(number, {}), lives.get(number, {})
        known = {**rank, **life}
        cells = [
            f'<td class="n">{number}</td>',
            f"<td>{_text(known.get('host', ''))}</td><td>{_text(known.get('device', ''))}</td>",
        ]
        for key, form in (("batches", "{:,.0f}"), ("samples", "{:,.0f}")):
            cells.append(f'<td class="n">{_figure(rank.get(key), form)}</td>')
        cells.append(
            f'<td class="n">{_figure((figures.number(rank.get("samples")) or 0.0) / total * 100, "{:.0f} %")}</td>'
        )
        for key, form in (("samples_per_s", "{:,.0f}"), ("busy_s", "{:,.1f} s"), ("wait_s", "{:,.1f} s")):
            cells.append(f'<td class="n">{_figure(rank.get(key), form)}</td>')
        how = " ".join(filter(None, [str(life.get("status", "")), str(life.get("why", ""))]))
        rows.append(f"<tr>{''.join(cells)}<td>{_text(how)}</td></tr>")
    heads = ("rank", "host", "device", "batches", "samples", "share", "samples/s busy", "busy", "waiting", "end")
    return f'<section id="ranks"><h2>Rank by rank</h2>{_table(heads, rows, (0, 3, 4, 5, 6, 7, 8))}</section>'


def _by_rank(value: Any) -> dict[int, Json]:
    return {rank["rank"]: rank for rank in figures.rows(value) if isinstance(rank.get("rank"), int)}


def _figure(value: Any, form: str) -> str:
    read = figures.number(value)
    return escape(form.format(read)) if read is not None else ""


def _table(heads: Iterable[str], rows: list[str], right: tuple[int, ...] = ()) -> str:
    titles = "".join(f'<th scope="col"{" class=n" if at in right else ""}>{head}</th>' for at, head in enumerate(heads))
    return f'<div class="table"><table><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _setting(files: RunFiles, told: Account, mask: Mask) -> str:
    opened, facts = told.opened, []
    if command := opened.get("command"):
        facts.append(("command", f"<code>{_text(shlex.join(map(str, command)), 4000)}</code>"))
    if opened.get("name"):
        facts.append(("in fdl.yml", _text(opened["name"])))
    if began := files.first("began").get("text"):
        facts.append(("training", _text(mask.text(str(began)))))
    git = told.git
    if git:
        changed = [str(name) for name in git.get("changed") or ()]
        clean = (
            f"{len(changed)} files differ from it: {', '.join(changed[:20])}" if changed else "nothing differs from it"
        )
        facts.append(
            ("code", f"{_text(git.get('branch', ''))} <code>{_text(git.get('commit', ''))}</code>; {_text(clean)}")
        )
    for key, name in (
        ("project", "project"),
        ("overlay", "environment"),
        ("controller", "controller"),
        ("system", "system"),
    ):
        if opened.get(key):
            facts.append((name, _text(mask.text(str(opened[key])))))
    if files.result.get("resumed"):
        facts.append(("went on from", _text(files.result["resumed"])))
    if told.packages:
        facts.append(("versions", _text(", ".join(f"{name} {version}" for name, version in told.packages.items()))))
    both = {**(opened.get("environment") or {}), **(opened.get("run_environment") or {})}
    if both:
        lines = "".join(f"<li><code>{_text(mask.text(f'{name}={value}'))}</code></li>" for name, value in both.items())
        facts.append(("variables", f"<ul>{lines}</ul>"))
    facts.append(("run", f"<code>{_text(files.run)}</code>"))
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    return f'<section id="setting"><h2>What ran</h2><dl class="facts">{listed}</dl></section>'


def _hosts(told: Account) -> str:
    if not told.hosts:
        return ""
    rows = []
    for row in told.hosts:
        cells = [row["host"], ", ".join(map(str, row["ranks"])), ", ".join(map(str, row["devices"])), row["cores"]]
        cells += [row["python"], row["torch"], row["nccl"], row["flodl"], row["road"], f"{row['status']} {row['why']}"]
        rows.append("<tr>" + "".join(f"<td>{_text(cell, 300)}</td>" for cell in cells) + "</tr>")
    heads = ("host", "ranks", "devices", "cores", "python", "torch", "nccl", "flodl", "came by", "end")
    differ = _list("Not the same everywhere", told.differ)
    return f'<section id="where"><h2>Where</h2>{_table(heads, rows)}{differ}</section>'


def _marks(history: Json, mask: Mask) -> str:
    marks = [mark for mark in history.get("marks") or () if isinstance(mark, list) and len(mark) == 3]
    if not marks:
        return ""
    items = "".join(
        f'<li><span class="at">{_figure(t, "{:,.1f} s")}</span><span class="kind">{_text(kind)}</span>'
        f'<span class="text">{_text(mask.text(str(text)))}</span></li>'
        for t, kind, text in marks
    )
    return f'<section id="marks"><h2>What happened</h2><ol class="marks">{items}</ol></section>'


def _voices(told: Account, mask: Mask) -> str:
    parts = []
    for voice in told.voices[:MOST_RANKS]:
        if voice.lines:
            lines = mask.text("\n".join(harmless(line, 2000) for line in voice.lines[-LINES:]))
            head = f"{voice.name}{', ' + voice.how if voice.how else ''}{' (the culprit)' if voice.culprit else ''}"
            body = f'<pre dir="auto">{escape(lines)}</pre>'
            parts.append(f"<details{' open' if voice.culprit else ''}><summary>{_text(head)}</summary>{body}</details>")
    return f'<section id="logs"><h2>Last lines</h2>{"".join(parts)}</section>' if parts else ""
