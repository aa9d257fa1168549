"""Work in forks of one process that has imported everything already: milliseconds, not seconds.

The process that forks never trains: the threads of autograd do not survive a fork.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn.datasets
import torch
from lab_runs import tiny_config

from friendly_sam.lab.cli import run_settings
from friendly_sam.lab.cli.dispatch import COMMANDS
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import config_parser, flatten, from_dict, to_dict
from friendly_sam.lab.plotting import canvas, panels
from friendly_sam.lab.plotting.palette import Theme
from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.training.streams import load_data


def warm_up() -> None:
    """Import and read what every command needs."""
    torch.set_num_threads(1)
    for name in COMMANDS:
        importlib.import_module(f"friendly_sam.lab.cli.{name.replace('-', '_')}")
    config = tiny_config(Path("none"))
    sklearn.datasets.load_digits = functools.cache(sklearn.datasets.load_digits)
    load_data(config)
    environment()
    from_dict(to_dict(config))  # makes the parser of files
    _keep_a_parser_ready()
    _draw_in_one_form()


def forked(work: Callable[[], int], *, learn: bool = False) -> int:
    """Do `work` in a child; return its exit code, negative for the signal that ended it.

    Args:
        work: returns the exit code.
        learn: import here what the child had to import, so that later ones need not.
    """
    with tempfile.NamedTemporaryFile("r") as modules:
        process = os.fork()
        if process == 0:
            leave(work, Path(modules.name) if learn else None)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if learn:
            _import(modules.read().split())
    return code


def leave(work: Callable[[], int], modules: Path | None = None) -> None:
    """Do `work` and end this process with its exit code; 70 for an exception, told in a line."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = work()
        if modules is not None:
            modules.write_text("\n".join(sys.modules))
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _import(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy all these pages
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    harmless = {Path(sys.executable).name[:15], "python", "jemalloc_bg_thd"}
    assert threads <= harmless, f"{threads}: forks of a process with threads hang"


def _draw_in_one_form() -> None:
    """Draw each figure of a page once, not as light and dark SVG, SVG file and PNG: seconds."""
    draw = canvas.render

    def render(paint: canvas.Paint, *, theme: Theme = "light", **options: Any) -> bytes:
        return draw(paint, theme=theme, **options) if theme == "dark" else b""

    canvas.render = panels.render = render


def _keep_a_parser_ready() -> None:
    """Make the parser of command lines before the fork; a child uses it once."""
    ready = [config_parser(formatter_class=run_settings._formatter())]

    def parser_of(start: RunConfig | None = None, **options: Any) -> Any:
        if not ready:
            return config_parser(start, **options)
        parser = ready.pop()
        for name, value in options.items():
            setattr(parser, name, value)
        if start is not None:
            parser.set_defaults(flatten(start))
        return parser

    run_settings.config_parser = parser_of
