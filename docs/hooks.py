"""What `mkdocs build` does besides: maths, tables in <details>, examples, lines of code."""

import re
from functools import cache
from typing import Any

import griffe
from latex2mathml.converter import convert

from friendly_sam._machinery.install import COMMAND

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
INSTALL = re.compile(r'pip install "\.\[([\w,]+)\]"')
PLACE = re.compile(r"`friendly_sam\.([\w.]+)`")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Read what GitHub reads: lists nested by two spaces, Markdown inside <details>.

    How an extra is installed is said in the words of the package. On the map of the paper, file and
    line are added to a name.
    """
    if page.file.src_uri == "paper-to-code.md":
        markdown = PLACE.sub(lambda found: _place(found[1]), markdown)
    markdown = INSTALL.sub(lambda found: COMMAND.format(extra=found[1]), markdown)
    markdown = re.sub(r"(?m)^  - ", "    - ", markdown)
    return markdown.replace("<details>", '<details markdown="1">')


def _place(path: str) -> str:
    found = _package()[path]
    module = found.module.path.removeprefix("friendly_sam.")
    file = module.replace(".", "/") + ".py"
    return f"`{path.removeprefix(module + '.')}` <small>{file}:{found.lineno}</small>"


@cache
def _package() -> Any:
    return griffe.load("friendly_sam")


def on_page_content(html: str, **_: Any) -> str:
    """Turn LaTeX into MathML, which a browser shows without a script."""
    html = INLINE.sub(lambda found: convert(_latex(found[1])), html)
    return DISPLAY.sub(lambda found: convert(_latex(found[1]), display="block"), html)


def _latex(escaped: str) -> str:
    return escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


class Readable(griffe.Extension):
    """Docstrings as Markdown: <a,b> is no HTML tag, and "Example:" means "Examples:"."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring."""
        if obj.docstring:
            text = re.sub(r"<([^<>\s]+, ?[^<>\s]+)>", r"⟨\1⟩", obj.docstring.value)
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", text)
