"""The picture of README is made of the records, and tells every task once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from friendly_sam.lab.paper.headline import FILE, LONGER, METHODS, SOURCES, lines, refresh
from friendly_sam.lab.paper.tuned_record import read_records

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_task_is_told_once_with_both_methods() -> None:
    files = [path for name in SOURCES if (path := DOCS / "results" / name).is_file()]
    records = [record for path in files for record in read_records(path)]
    found = lines(records)
    assert len({line.label for line in found}) == len(found) >= 8
    assert "over SGD, n = 10" in found[0].label
    assert all({lead.entry.name for lead in line.leads} >= set(METHODS) for line in found)
    assert sum(LONGER in {lead.entry.name for lead in line.leads} for line in found) >= 3
    runs = [str(line.leads[0].entry.last) for line in found]
    assert len(set(runs)) == len(runs) < len(records)


def test_a_lead_is_paired_with_the_base_optimizer_of_its_task() -> None:
    records = read_records(DOCS / "results" / "mini" / "table6.json")
    for line, record in zip(lines(records), records, strict=True):
        base = record.entries[0]
        for lead in line.leads:
            gaps = [lead.entry.last[seed] - base.last[seed] for seed in base.last]
            assert abs(lead.difference.mean - sum(gaps) / len(gaps)) < 1e-9


def test_the_picture_is_drawn_where_there_are_records(tmp_path: Path) -> None:
    assert not refresh(tmp_path).exists()
    source = tmp_path / "results" / SOURCES[1]
    source.parent.mkdir(parents=True)
    source.write_bytes((DOCS / "results" / SOURCES[1]).read_bytes())
    assert refresh(tmp_path).read_bytes().startswith(b"<?xml")
    assert (DOCS / "results" / FILE).is_file()


def test_no_words_of_the_picture_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond: list[str] = []
    save = Figure.savefig

    def look(figure: Figure, *arguments: Any, **options: Any) -> None:
        save(figure, *arguments, **options)
        FigureCanvasAgg(figure).draw()
        axes = figure.axes[0]
        for text in (axes.xaxis.label, axes.title, *axes.get_yticklabels()):
            box = text.get_window_extent()
            if box.x0 < 0 or box.x1 > figure.bbox.width:
                beyond.append(text.get_text())

    monkeypatch.setattr(Figure, "savefig", look)
    shutil.copytree(DOCS / "results", tmp_path / "results", ignore=shutil.ignore_patterns("*.svg"))
    refresh(tmp_path)
    assert beyond == []
