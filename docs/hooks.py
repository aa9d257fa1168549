"""What `mkdocs build` does besides: maths as MathML, tables inside <details>, examples as code."""

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let Markdown look inside <details>, as the pages of the results need."""
    return markdown.replace("<details>", '<details markdown="1">')


def on_page_content(html: str, **_: Any) -> str:
    """Turn LaTeX into MathML, which a browser shows without a script."""
    html = INLINE.sub(lambda found: convert(_latex(found[1])), html)
    return DISPLAY.sub(lambda found: convert(_latex(found[1]), display="block"), html)


def _latex(escaped: str) -> str:
    return escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


class ExamplesByAnyName(griffe.Extension):
    """Read "Example:" in a docstring as griffe reads "Examples:"."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the heading."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
