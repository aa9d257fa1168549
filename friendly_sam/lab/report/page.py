"""One self-contained HTML page: no script, no request, light and dark, fit for a phone."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.plotting.canvas import Figure, Kind
from friendly_sam.lab.plotting.palette import Theme
from friendly_sam.lab.plotting.panels import Panel, chart_size, draw_chart
from friendly_sam.lab.report.tables import Table, html_table

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --ground: #ffffff; --line: #d0d7de;
  --soft: #57606a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --line: #3d444d; --soft: #9198a1; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 58rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.lead { font-size: 1.08rem; border-left: 4px solid #0072b2; padding-left: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%;
  font-size: .94rem; }
th, td { text-align: right; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
.text { text-align: left; white-space: normal; }
.key { margin-top: 1rem; font-size: .9rem; } .key td, .key th { text-align: left; }
.key td:first-child { white-space: nowrap; }
.key td:last-child { white-space: normal; width: 100%; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
figure { margin: 1rem 0; } img { width: 100%; height: auto; }
figcaption, footer { color: var(--soft); font-size: .9rem; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media (max-width: 44rem) {
  thead { display: none; } table, tbody, tr, td { display: block; width: 100%; }
  tr { padding: .4rem 0 .6rem; border-bottom: 1px solid var(--line); }
  td, td:first-child { border: 0; padding: .1rem 0; display: flex; justify-content: space-between;
    gap: 1rem; white-space: normal; text-align: right; }
  td:first-child { font-weight: 600; } td:empty { display: none; }
  td:not(:first-child)::before { content: attr(data-label); color: var(--soft); }
  .key td { display: block; text-align: left; } .key td::before { content: none; } }
"""


KINDS: tuple[Kind, ...] = ("png", "svg")
THEMES: tuple[Theme, ...] = ("light", "dark")
DARK = "(prefers-color-scheme: dark)"
NARROW = "(max-width: 44rem)"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with words, a chart, a figure, a table and its key, each if it is there."""

    title: str
    text: str = ""
    table: Table | None = None
    key: Table | None = None
    """What the short names in the table stand for."""
    chart: Panel | None = None
    figure: Figure | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report."""

    title: str
    lead: str = ""
    """The one sentence to take away."""
    sections: Sequence[Section] = field(default_factory=tuple)
    footer: str = ""


def render(page: Page) -> str:
    """Return the page as HTML; every text in it is escaped."""
    body = [f"<h1>{escape(page.title)}</h1>"]
    if page.lead:
        body.append(f'<p class="lead">{escape(page.lead)}</p>')
    for section in page.sections:
        body.append(f"<section><h2>{escape(section.title)}</h2>")
        if section.text:
            body.append(f"<p>{escape(section.text)}</p>")
        if section.chart is not None:
            body.append(_chart(section.chart))
        if section.figure is not None:
            body.append(_figure(section.figure))
        if section.table is not None:
            body.append(html_table(section.table))
        if section.key is not None:
            body.append(f'<div class="key">{html_table(section.key)}</div>')
        body.append("</section>")
    if page.footer:
        body.append(f"<footer>{escape(page.footer)}</footer>")
    return document(page.title, _STYLE, body)


def document(title: str, style: str, body: Sequence[str]) -> str:
    """Return a whole HTML document; `body` is HTML, the title is escaped."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def write(page: Page, path: Path) -> list[Path]:
    """Write the page, and each chart and figure beside it as PNG and SVG; return all paths."""
    path.parent.mkdir(parents=True, exist_ok=True)  # named by the user: a link is followed
    paths = [path]
    write_atomically(path, render(page))
    charts = [section.chart for section in page.sections if section.chart is not None]
    for number, chart in enumerate(charts, start=1):
        stem = path.stem if len(charts) == 1 else f"{path.stem}-{number}"
        for kind in KINDS:
            target = path.with_name(f"{stem}.{kind}")
            write_atomically(target, draw_chart(chart, kind))
            paths.append(target)
    for figure in [section.figure for section in page.sections if section.figure is not None]:
        for kind in KINDS:
            target = path.with_name(f"{path.stem}-{figure.name}.{kind}")
            write_atomically(target, figure.draw(kind))
            paths.append(target)
    return paths


def _chart(chart: Panel) -> str:
    light, dark = (draw_chart(chart, "svg", theme) for theme in THEMES)
    return _picture(light, dark, chart.description or chart.title, chart_size(chart))


def _figure(figure: Figure) -> str:
    light, dark = (figure.draw("svg", theme) for theme in THEMES)
    stacked = ""
    if figure.narrow is not None and figure.narrow != figure.size:
        own_light, own_dark = (figure.draw("svg", theme, narrow=True) for theme in THEMES)
        stacked = _source(f"{NARROW} and {DARK}", own_dark, figure.narrow)
        stacked += _source(NARROW, own_light, figure.narrow)
    return _picture(light, dark, figure.alt, figure.size, stacked)


def _picture(
    light: bytes, dark: bytes, alt: str, size: tuple[float, float], first: str = ""
) -> str:
    """Return a picture for both themes; the sources in `first` come before them."""
    return (
        f'<figure style="max-width: {7.6 * size[0]:.0f}rem"><picture>{first}'
        f"{_source(DARK, dark, size)}"
        f'<img src="{_uri(light)}" alt="{escape(alt, quote=True)}" {_sides(size)}>'
        "</picture></figure>"
    )


def _source(media: str, svg: bytes, size: tuple[float, float]) -> str:
    return f'<source media="{media}" srcset="{_uri(svg)}" {_sides(size)}>'


def _sides(size: tuple[float, float]) -> str:
    width, height = (round(160 * side) for side in size)
    return f'width="{width}" height="{height}"'


def _uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
