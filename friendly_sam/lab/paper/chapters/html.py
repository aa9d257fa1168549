"""All experiments as one self-contained HTML page: no script, no request, light and dark."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.chapters.chapter import Chapter
from friendly_sam.lab.paper.claims import Comparison, Judgement, show_p
from friendly_sam.lab.plotting.palette import INKS
from friendly_sam.lab.plotting.panels import inline_svg
from friendly_sam.lab.report.page import document
from friendly_sam.lab.report.tables import html_table

WIDE = 2.0
"""How much wider than high a figure is that has the whole width of the page."""
_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --soft: #57606a; --raised: #f6f8fa;
  --good: #116329; --good-ground: #dafbe1; --bad: #a40e26; --bad-ground: #ffebe9;
  --open: #6a4a00; --open-ground: #fff1c9; LIGHT }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --soft: #9198a1;
  --raised: #161b22; --good: #7ee2a0; --good-ground: #0f2a18; --bad: #ffa198;
  --bad-ground: #3a1216; --open: #f0cf7a; --open-ground: #33270a; DARK } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--c0); background: var(--ground);
  max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .4rem; }
h2 { font-size: 1.25rem; margin: 0 0 .3rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
a { color: var(--c4); } code { font-size: .92em; background: var(--raised); padding: .1em .35em;
  border-radius: 4px; overflow-wrap: anywhere; }
section { margin-top: 3rem; padding-top: 1.2rem; border-top: 1px solid var(--c1); }
.name { color: var(--soft); font-weight: 400; }
.claim { border-left: 4px solid var(--c4); padding-left: .9rem; margin: .6rem 0 1rem; }
.note { background: var(--open-ground); color: var(--open); padding: .5rem .8rem;
  border-radius: 6px; }
.soft { color: var(--soft); font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .94rem; }
th, td { text-align: right; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--c1);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.text { text-align: left; white-space: normal; min-width: 13rem; }
.words td { white-space: normal; text-align: left; vertical-align: top; }
.words th { text-align: left; } .words td:last-child { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
.verdict { display: inline-block; border-radius: 999px; padding: .05rem .65rem; font-size: .85rem;
  font-weight: 600; white-space: nowrap; }
.holds { color: var(--good); background: var(--good-ground); }
.does-not-hold { color: var(--bad); background: var(--bad-ground); }
.undecided, .not-run { color: var(--open); background: var(--open-ground); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr));
  gap: 1rem; margin: 1rem 0; } .panels svg { width: 100%; height: auto; display: block; }
.panels svg { max-width: 34rem; } .panels img { width: 100%; background: #fff; }
.panels .wide { grid-column: 1 / -1; } .panels { grid-auto-flow: dense; }
@media (prefers-color-scheme: dark) { .panels img { filter: invert(.93) hue-rotate(180deg); } }
details { margin: .7rem 0; } summary { cursor: pointer; color: var(--soft); }
ul.claims { list-style: none; padding: 0; } ul.claims li { margin: .35rem 0; }
ul.claims summary { color: inherit; }
.contents { columns: 2 20rem; column-gap: 2.6rem; padding-left: 1.8rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .5rem 0;
  font-size: .92rem; } dt { color: var(--soft); } dd { margin: 0; }
.ids { font-size: .82rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; border-top: 1px solid var(--c1); padding-top: .8rem;
  color: var(--soft); font-size: .9rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; } }
"""


@dataclass(frozen=True, kw_only=True)
class Book:
    """The whole report."""

    title: str
    lead: str
    setting: str
    """What all experiments have in common."""
    source: str
    """The paper."""
    chapters: Sequence[Chapter]
    footer: str


def render(book: Book) -> str:
    """Return the page as HTML; every text in it is escaped."""
    body = [f"<h1>{escape(book.title)}</h1>", f"<p>{escape(book.lead)}</p>"]
    body.append(f"<p>{_prose(book.setting)}</p>")
    body.append(f'<p class="soft">Printed numbers: {escape(book.source)}</p>')
    body.append('<nav aria-label="Contents"><h3>Contents</h3><ol class="contents">')
    for chapter in book.chapters:
        name, title = chapter.experiment.name, chapter.experiment.title
        body.append(f'<li><a href="#{escape(name)}">{escape(name)}</a>: {escape(title)}</li>')
    body.append("</ol></nav>")
    body.append(_summary(book.chapters))
    body += [_chapter(chapter) for chapter in book.chapters]
    body.append(f"<footer>{escape(book.footer)}</footer>")
    return document(book.title, _style(), body)


def _prose(text: str) -> str:
    """Return words as HTML: what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _style() -> str:
    light, dark = (
        " ".join(f"--c{number}: {colour};" for number, colour in enumerate(ink.all()))
        for ink in (INKS["light"], INKS["dark"])
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark)


def _summary(chapters: Sequence[Chapter]) -> str:
    counted = any(j.tally for c in chapters for j in c.judgements)
    rows = [
        f'<tr><td><a href="#{escape(c.experiment.name)}">{escape(c.experiment.name)}</a></td>'
        f"<td>{escape(j.text)}</td><td>{_badge(j)}</td>"
        + (f'<td class="soft">{escape(j.tally)}</td></tr>' if counted else "</tr>")
        for c in chapters
        for j in c.judgements
    ]
    return (
        '<h3>What the paper says, and what was seen here</h3><div class="scroll">'
        '<table class="words"><thead><tr><th>experiment</th><th>claim</th><th>here</th>'
        f"{'<th>intervals</th>' if counted else ''}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _badge(judgement: Judgement) -> str:
    kind = judgement.verdict.replace(" ", "-")
    return f'<span class="verdict {kind}">{escape(verdict_text(judgement))}</span>'


def verdict_text(judgement: Judgement) -> str:
    """Write a verdict with its number of seeds."""
    if judgement.verdict == "not run":
        return "not run"
    at = " at" if judgement.verdict == "undecided" else ","
    text = f"{judgement.verdict}{at} n = {judgement.n}" if judgement.n else judgement.verdict
    if judgement.preferred in (None, judgement.verdict):
        return text
    return f"{text} ({judgement.preferred} with early stopping)"


def difference_text(comparison: Comparison) -> str:
    """Write a difference with its interval and number of seeds."""
    if comparison.difference is None:
        return f"n = {comparison.n}" if comparison.n else ""
    text = f"{comparison.difference}"
    text += "" if comparison.p is None else f", p {show_p(comparison.p)}"
    seen = "" if comparison.power is None else f"; {comparison.power:.2g} would have been seen"
    gone = f"; {counted(comparison.missing, 'seed')} missing" if comparison.missing else ""
    return f"{text} (n={comparison.n}{gone}{seen})"


def _chapter(chapter: Chapter) -> str:
    experiment = chapter.experiment
    parts = [
        f'<section id="{escape(experiment.name)}"><h2>{escape(experiment.title)} '
        f'<span class="name">({escape(experiment.name)})</span></h2>',
        f'<p class="claim">{escape(experiment.claim)}</p>',
        *[f'<p class="note">{escape(note)}</p>' for note in chapter.notes],
    ]
    if chapter.judgements:
        parts.append(_judgements(chapter.judgements))
    drawn = [
        f"<div>{inline_svg(p, f'{experiment.name}-{number}')}</div>"
        for number, p in enumerate(chapter.panels)
    ]
    drawn += [_foreign_svg(path, caption) for path, caption in chapter.figures]
    if drawn:
        parts.append(f'<div class="panels">{"".join(drawn)}</div>')
    if chapter.measured is not None:
        parts.append("<h3>Measured</h3>" + html_table(chapter.measured))
        parts.append(f'<p class="soft">{_prose(chapter.caption)}</p>')
    for title, more in chapter.more:
        parts.append(f"<h3>{escape(title)}</h3>" + html_table(more))
    if chapter.printed is not None:
        where = escape(chapter.printed_where)
        parts.append(f"<h3>Printed in the paper: {where}</h3>" + html_table(chapter.printed))
    parts.append(f"<h3>Setting</h3><p>{_prose(chapter.mapping)}</p>")
    parts.append(f"<p><code>{escape(chapter.command)}</code></p>")
    if chapter.facts:
        items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in chapter.facts)
        parts.append(f"<dl>{items}</dl>")
    if chapter.sweep is not None:
        parts.append(_details("The sweep, and what was chosen", html_table(chapter.sweep)))
    if chapter.records:
        rows = "".join(
            f"<dt>{escape(cell)}</dt><dd><code>{escape(names)}</code></dd>"
            for cell, names in chapter.records
        )
        parts.append(_details("Run folders behind every number", f'<dl class="ids">{rows}</dl>'))
    return "\n".join([*parts, "</section>"])


def _judgements(judgements: Sequence[Judgement]) -> str:
    items = []
    for judgement in judgements:
        rows = "".join(
            f"<tr><td>{escape(c.label)}</td><td>{escape(difference_text(c))}</td></tr>"
            for c in judgement.comparisons
        )
        table = f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'
        head = f"{_badge(judgement)} {escape(judgement.text)}"
        if judgement.tally:
            head += f' <span class="soft">({escape(judgement.tally)})</span>'
        items.append(f"<li><details><summary>{head}</summary>{table}</details></li>")
    return f'<ul class="claims">{"".join(items)}</ul>'


def _details(title: str, inner: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def _foreign_svg(path: Path, caption: str) -> str:
    """Show an SVG made elsewhere as an image, so that its ids stay its own.

    One of several panels has the whole width, else its letters are too small to read.
    """
    content = path.read_bytes()
    uri = "data:image/svg+xml;base64," + base64.b64encode(content).decode()
    found = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', content)
    wide = found is not None and float(found[1]) > WIDE * float(found[2])
    text, kind = escape(caption), ' class="wide"' if wide else ""
    return f'<div{kind}><img src="{uri}" alt="{text}"><p class="soft">{text}</p></div>'
