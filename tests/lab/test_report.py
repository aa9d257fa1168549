from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_runs import Tiny
from scipy import stats

from friendly_sam.lab.cli import demo as demo_module
from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.demo import Results, best_with_best, verdict
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.chapters.html import _foreign_svg
from friendly_sam.lab.paper.tuned_record import read_records
from friendly_sam.lab.plotting.canvas import Figure
from friendly_sam.lab.plotting.palette import dashed, looks
from friendly_sam.lab.plotting.panels import Panel, Series, chart_size, draw_chart
from friendly_sam.lab.records.claim import claimed
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.report.export import as_csv, as_json
from friendly_sam.lab.report.finding import find_runs
from friendly_sam.lab.report.groups import LONGEST, group_runs
from friendly_sam.lab.report.page import Page, Section, _figure, render
from friendly_sam.lab.report.runs import MOST, compare, key_table, results_table, runs_page, summary
from friendly_sam.lab.report.tables import Table, html_table, plain_table
from friendly_sam.lab.statistics import paired_difference, summarize
from friendly_sam.lab.training.trainer import train

DOCS = Path(__file__).parents[2] / "docs"


def test_matplotlib_without_a_place_for_its_settings_says_nothing() -> None:
    code = (
        "from friendly_sam.lab.plotting.canvas import render\n"
        "render(lambda axes, ink: axes[0].plot([1, 2]), kind='svg')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MPLCONFIGDIR": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_summaries_are_numpys() -> None:
    values = [90.1, 92.4, 88.0, 91.7]
    summary = summarize(values)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))
    assert str(summarize([50.0])) == "50.00 (n=1)"
    with pytest.raises(ValueError, match="at least one"):
        summarize([])


def test_the_interval_is_scipys_paired_t() -> None:
    first = {0: 90.1, 1: 92.4, 2: 88.0, 3: 91.7, 9: 1.0}
    second = {3: 90.0, 2: 87.0, 1: 92.0, 0: 89.5, 8: 2.0}
    seeds = range(4)
    expected = stats.ttest_rel([first[s] for s in seeds], [second[s] for s in seeds])
    low, high = expected.confidence_interval(0.95)
    difference = paired_difference(first, second)
    assert difference is not None
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert difference.n == 4
    assert difference.holds == (expected.pvalue < 0.05)
    assert paired_difference({0: 1.0}, {0: 2.0}) is None


@pytest.mark.parametrize(
    ("sam", "fsam", "expected"),
    [
        ((10, 11, 12), (80, 82, 81), "F-SAM is ahead by 70.0 points"),
        ((80, 82, 81), (10, 11, 12), "F-SAM does not win here: SAM is ahead by 70.0 points"),
        ((80, 82, 81), (82, 80, 82), "is not clear of 0 with 3 seeds"),
        ((80,), (82,), "with one seed that says nothing about chance"),
    ],
)
def test_the_demo_says_what_was_seen_whoever_wins(
    sam: tuple[float, ...], fsam: tuple[float, ...], expected: str
) -> None:
    results = Results(
        tuned={"sgd": {0: 70.0}},
        sam={0.1: {0: 99.0}, 0.8: dict(enumerate(sam))},
        fsam={0.1: {0: 0.0}, 0.8: dict(enumerate(fsam))},
    )
    sentence = verdict(results)
    assert expected in sentence
    assert "at one setting (learning rate 0.05): at the largest, 0.8" in sentence


def test_the_demo_says_where_its_settings_were_chosen_for_other_epochs() -> None:
    shown = best_with_best(Results(tuned={"sgd": {0: 80.0}}, sam={}, fsam={}), 2)
    assert "chose for it at 30 epochs, which may not be the best at 2" in shown


def test_the_demo_compares_best_with_best_first() -> None:
    tuned = {"sgd": {0: 88.0, 1: 89.0}, "sam": {0: 90.0, 1: 91.0}, "fsam": {0: 88.6, 1: 88.8}}
    sentence = best_with_best(Results(tuned=tuned, sam={}, fsam={}))
    assert sentence.startswith("Best against best, each with settings that validation images chose")
    assert "SAM - SGD +2.0 points" in sentence
    assert re.search(r"F-SAM - SGD \+0\.2 points \(.* to .*, not clear of 0\)", sentence)


def test_the_demos_settings_are_those_that_were_chosen() -> None:
    record = read_records(DOCS / "results" / "mini" / "table1.json")[0]
    chosen = {entry.name: entry.chosen.settings for entry in record.entries}
    for method, settings in demo_module.TUNED.items():
        assert settings == chosen[demo_module.LABELS[method]]


def test_tables_line_up() -> None:
    table = Table(header=["a", "value"], rows=[["long name ρ", "1 ± 2"], ["b", "100 ± 20"]])
    lines = plain_table(table).splitlines()
    assert lines[0].endswith("value")
    assert {len(line) for line in lines} == {len("long name ρ") + 2 + len("100 ± 20")}


def test_everything_on_a_page_is_escaped_and_nothing_is_fetched() -> None:
    evil = "<script>alert('x')</script>&\""
    chart = Panel(
        title=evil,
        x_label="x",
        y_label="y",
        series=[Series(label=evil, x=[1, 2], y=[3, 4])],
        description=evil,
    )
    section = Section(title=evil, text=evil, chart=chart, table=Table(header=[evil], rows=[[evil]]))
    html = render(Page(title=evil, lead=evil, sections=[section], footer=evil))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 7
    links = re.findall(r'(?:src|href|srcset)="([^"]*)"', html)
    assert len(links) == 2
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links)
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_figures_are_the_same_each_time() -> None:
    chart = Panel(title="t", x_label="x", y_label="y", series=[Series(label="SAM", x=[1], y=[2])])
    for kind in ("png", "svg"):
        assert draw_chart(chart, kind) == draw_chart(chart, kind)  # type: ignore[arg-type]
    assert draw_chart(chart, "svg") != draw_chart(chart, "svg", "dark")


def test_panels_side_by_side_are_stacked_on_a_phone() -> None:
    def paint(panels: Sequence[Any], _: Any) -> None:
        for axes in panels:
            axes.plot([0, 1], [0, 1])

    figure = Figure(name="f", alt="two", paint=paint, panels=2, size=(6, 3), narrow=(3, 6))
    html = render(Page(title="t", sections=[Section(title="s", figure=figure)]))
    assert html.count('<source media="(max-width: 44rem)') == 2  # light and dark
    alone = Figure(name="f", alt="one", paint=paint, size=(6, 3))
    assert "(max-width: 44rem)" not in _figure(alone)


def test_a_figure_of_several_panels_has_the_whole_width(tmp_path: Path) -> None:
    for size, wide in (("720 340", True), ("360 340", False)):
        path = tmp_path / "figure.svg"
        path.write_text(f'<svg viewBox="0 0 {size}"></svg>')
        assert ('class="wide"' in _foreign_svg(path, "words")) == wide


def test_runs_are_grouped_by_settings_and_named_by_what_differs(tiny: Tiny) -> None:
    for seed in range(2):
        for rho in (0.1, 0.2):
            train(tiny(f"sam-{rho}-{seed}", method={"name": "sam", "rho": rho}, seed=seed))
    sgd = train(tiny("sgd", method={"name": "base"}))
    runs = find_runs([sgd.parent]).runs
    groups = group_runs(runs)
    assert sorted(group.name for group in groups) == ["SAM ρ=0.1", "SAM ρ=0.2", "SGD"]
    assert sorted(len(group.runs) for group in groups) == [1, 2, 2]
    rows = compare(runs)
    page, table = runs_page(rows, ""), results_table(rows)
    (row,) = [row for row in table.rows if row[0] == "SAM ρ=0.2"]
    values = [r.final("test_accuracy") for r in runs if r.config.method.rho == 0.2]
    assert row[1] == "2"
    assert row[2] == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    assert len([section for section in page.sections if section.chart]) == 2


def test_half_trained_and_repeated_runs_are_not_averaged_in(tiny: Tiny) -> None:
    first = train(tiny("a", method={"name": "fsam"}, epochs=3))
    half = train(tiny("b", method={"name": "fsam"}, epochs=3, seed=1))
    train(tiny("c", method={"name": "fsam"}, epochs=3))  # the first again
    train(tiny("d", method={"name": "base"}, epochs=3))
    (half / "status.json").write_text(json.dumps({"state": "running"}))
    lines = (half / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text(lines[0])
    runs = find_runs([first.parent]).runs
    rows = compare(runs)
    table, page = results_table(rows), runs_page(rows, summary(runs, rows, []))
    assert [row.group.name for row in rows] == ["SGD", "F-SAM", "F-SAM (stopped, 1 of 3 epochs)"]
    named = {row[0]: row for row in table.rows}
    assert list(named) == ["SGD", "F-SAM", "F-SAM (stopped)"]
    key = key_table(rows)
    assert key is not None
    assert key.rows == [["F-SAM (stopped)", "F-SAM (stopped, 1 of 3 epochs)"]]
    assert named["F-SAM"][1:3] == ["1", f"{runs[0].final('test_accuracy'):.2f}"]
    assert not any("against" in title for title in table.header)  # one seed: nothing to compare
    assert "settings and seed are there already: c." in page.lead
    chart = page.sections[1].chart
    assert chart is not None
    assert [len(series.x) for series in chart.series] == [3, 3, 1]


def test_groups_have_names_of_their_own_and_data_are_kept_apart(tiny: Tiny) -> None:
    folders = []
    for seed in range(2):
        for base in ("sgd", "adamw"):
            changes = {"method": {"name": "fsam"}, "base": {"name": base, "lr": 0.01}}
            folders.append(train(tiny(f"{base}{seed}", seed=seed, **changes)))
    other = train(tiny("few", method={"name": "base"}, data={"train_size": 100}))
    runs = find_runs([*folders, folders[0], other]).runs
    assert len(runs) == 5  # each once
    running, failed = (
        dataclasses.replace(run, state=state, metrics=run.metrics[:1])
        for run, state in ((runs[0], "running"), (runs[2], "failed"))
    )
    groups = group_runs([running, failed, *runs])
    assert [group.name.split()[0] for group in groups] == ["F-SAM"] * 4 + ["SGD"]
    assert len({group.name for group in groups}) == len({group.label for group in groups}) == 5
    assert all(len(group.label) <= LONGEST for group in groups)
    assert [group.label.rpartition(" (")[2] for group in groups[:2]] == ["stopped)", "failed)"]
    rows = compare([running, failed, *runs])
    assert {row.task for row in rows} == {"digits, train_size 250", "digits, train_size 100"}
    assert all(row.difference is None for row in rows)  # the only base is on other data
    titles = [section.title for section in runs_page(rows, "").sections]
    assert len(titles) == 6  # a table and two charts for each data set


def test_methods_are_compared_with_the_base_of_the_same_data_and_optimizer(tiny: Tiny) -> None:
    """Not with the group that comes first by name, and never with a base on other images."""
    for seed in range(2):
        for noise in (0.0, 0.5):
            for name, base in (("base", "sgd"), ("base", "adamw"), ("asam", "adamw")):
                changes = {"method": {"name": name}, "base": {"name": base, "lr": 0.01}}
                folder = f"{name}-{base}-{noise}-{seed}"
                train(tiny(folder, seed=seed, epochs=1, data={"label_noise": noise}, **changes))
    runs = find_runs([Path(str(tiny("x").output)).parent]).runs
    rows = compare(runs)
    compared = [row for row in rows if row.difference is not None]
    assert {(row.task, row.group.label, row.against) for row in compared} == {
        (f"digits, label_noise {noise}", "ASAM adamw", "AdamW") for noise in ("0", "0.5")
    }
    for row in compared:
        noise = float(row.task.split()[-1])
        values = {
            (r.config.method.name, r.config.base.name, r.config.seed): r.final("test_accuracy")
            for r in runs
            if r.config.data.label_noise == noise
        }
        gains = [values["asam", "adamw", s] - values["base", "adamw", s] for s in (0, 1)]
        assert row.difference is not None
        assert row.difference.mean == pytest.approx(np.mean(gains))
    of_first = [row for row in rows if row.task == rows[0].task]
    assert results_table(of_first).header[-1] == "against AdamW"
    records = json.loads(as_json(rows))
    assert len(records) == len(as_csv(rows).splitlines()) - 1 == 6
    by_seed = records[0]["test_accuracy_by_seed"].values()
    assert records[0]["test_accuracy"] == pytest.approx(np.mean(list(by_seed)))
    assert records[0]["settings"]["base.lr"] == 0.01


def test_folders_of_experiments_beside_runs_are_left_out_unless_named(tiny: Tiny) -> None:
    one = train(tiny("one", epochs=1))
    inner = train(tiny("demo/runs/inner", epochs=1))
    (one.parent / "report.html").touch()
    demo = one.parent / "demo"

    def names(*folders: Path) -> list[str]:
        return [run.folder.name for run in find_runs(folders).runs]

    assert names(one.parent) == ["one"]
    assert names(*sorted(one.parent.iterdir())) == ["one"]  # runs/*
    assert names(demo) == names(inner) == ["inner"]
    assert find_runs([one.parent]).skipped == (f"{demo} (1 run)",)
    assert find_runs(sorted(one.parent.iterdir())).skipped == (
        f"{demo} (1 run)", f"{one.parent / 'report.html'} (no run)",
    )  # fmt: skip
    with pytest.raises(LabError, match="does not exist"):
        names(one, one.parent / "two")


def test_a_crowd_of_long_names_keeps_tables_and_charts_readable(tiny: Tiny) -> None:
    """Warnings of matplotlib are errors here; a squashed chart gives one."""
    run = read_run(train(tiny("a", method={"name": "fsam"}, epochs=1)))
    many = [
        dataclasses.replace(
            run,
            config=dataclasses.replace(
                run.config,
                method=dataclasses.replace(run.config.method, sigma=i / 7, decay=0.5 + i / 100),
                base=dataclasses.replace(run.config.base, weight_decay=i * 1.234e-5),
            ),
        )
        for i in range(30)
    ]
    rows = compare(many)
    assert len({row.group.label for row in rows}) == 30
    page = runs_page(rows, "")
    chart = page.sections[1].chart
    assert chart is not None
    assert len(chart.series) == MOST
    assert page.sections[1].title.endswith(f"(the best {MOST} of 30)")
    assert chart_size(chart)[1] < 5.5
    draw_chart(chart, "png")
    assert max(map(len, plain_table(results_table(rows)).splitlines())) <= 100


def test_tables_fit_the_terminal() -> None:
    header = ["a run with a long name", *[f"column {i}" for i in range(13)]]
    wide = Table(header=header, rows=[["name-" * 12, *["12.34 ± 5.67"] * 13]] * 2)
    text = plain_table(wide)
    assert max(map(len, text.splitlines())) <= 100
    assert all(text.count(f"column {i}") >= 1 for i in range(13))
    assert text.count("12.34 ± 5.67") == 26


def test_sentences_are_wrapped_on_a_page_and_numbers_are_not() -> None:
    words = "learning rate 0.03 to 0.3; weight decay 0.001 to 0.02"
    table = Table(header=["", "searched", "value"], rows=[["SGD", words, "1.5 [1.4, 1.6] " * 3]])
    text = html_table(table)
    assert f'<td data-label="searched" class="text">{words}</td>' in text
    assert text.count('class="text"') == 2  # its heading too
    assert html_table(Table(header=["a", "b"], rows=[])).count("<th ") == 2


def test_the_best_epoch_is_the_one_that_validation_prefers(tiny: Tiny) -> None:
    run = read_run(train(tiny("a", epochs=1)))

    def best(**series: tuple[float, ...]) -> float:
        lines = [dict(zip(series, values)) for values in zip(*series.values())]
        metrics = tuple({**run.metrics[0], **line} for line in lines)
        return compare([dataclasses.replace(run, metrics=metrics)])[0].best.mean

    assert best(test_accuracy=(50, 90, 70)) == 90
    assert best(test_accuracy=(50, 90, 70), validation_accuracy=(1, 2, 3)) == 70


def test_lines_without_markers_differ_by_more_than_colour() -> None:
    found = dashed(looks(["SGD", "MSAM", "SAM", "F-SAM", "SAM 2", "SAM 3"]))
    assert len({look.dash for look in found[:4]}) == 4
    assert len({(look.colour, look.dash, look.strength) for look in found}) == 6


def test_no_two_lines_of_a_chart_look_alike() -> None:
    names = ["F-SAM rho=0.1", "F-SAM rho=0.2", "SAM", "SGD", "AdamW", "a", "b", "c", "d", "e"]
    names += [f"SAM {i}" for i in range(6)]
    found = [(look.colour, look.dash, look.strength) for look in looks(names)]
    assert len(set(found)) == len(names)
    assert looks(["SAM"])[0] == looks(names)[2]


def test_settings_that_a_method_does_not_have_are_not_in_its_name(tiny: Tiny) -> None:
    folders = [
        train(tiny("a", method={"name": "base"})),
        train(tiny("b", method={"name": "sam", "rho": 0.1})),
        train(tiny("c", method={"name": "fsam", "rho": 0.1})),
        train(tiny("d", method={"name": "fsam", "rho": 0.1, "decay": 0.5})),
    ]
    names = [group.name for group in group_runs(find_runs(folders).runs)]
    assert names == ["SGD", "SAM", "F-SAM decay=0.9", "F-SAM decay=0.5"]


def test_the_legend_of_many_lines_is_below_the_chart_and_bars_end_at_the_ceiling() -> None:
    def chart(lines: int, ceiling: float = math.inf) -> Panel:
        series = [
            Series(label=f"line {i}", x=[1, 2], y=[99, 98 - i], error=[9, 1]) for i in range(lines)
        ]
        return Panel(title="t", x_label="x", y_label="y", series=series, ceiling=ceiling)

    def size(of: Panel) -> tuple[int, int]:
        drawn = draw_chart(of, "png")
        return int.from_bytes(drawn[16:20], "big"), int.from_bytes(drawn[20:24], "big")

    assert size(chart(3)) == size(chart(4))
    assert size(chart(30))[0] == size(chart(3))[0]
    assert size(chart(30))[1] > size(chart(3))[1]
    assert draw_chart(chart(3), "svg") != draw_chart(chart(3, ceiling=100), "svg")


def test_a_run_cut_off_is_shown_as_unfinished(tiny: Tiny) -> None:
    folder = train(tiny("whole"))
    (folder / "status.json").write_text(json.dumps({"state": "running"}))
    runs = [read_run(folder)]
    rows = compare(runs)
    text = summary(runs, rows, [])
    assert text.startswith("1 run in 1 group.")
    assert "Not finished, and counted apart: whole (stopped)" in render(runs_page(rows, text))
    with claimed(folder):  # somebody writes to it
        assert "whole (running)" in summary(runs, rows, [])
    empty = dataclasses.replace(read_run(folder), metrics=())
    with pytest.raises(LabError, match="none of these runs has finished an epoch"):
        compare([empty])


def test_the_demo_at_a_tiny_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["demo", "--seeds", "2", "--radii", "0.1", "0.8", "--epochs", "1"]
    assert main([*arguments, "--workers", "1"]) == 0
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if line[:5] in ("tuned", "ρ 0.1", "ρ 0.8")]
    assert len(table) == 3
    assert all("(n=2)" in line for line in table)
    assert max(map(len, out.splitlines())) <= 100
    sentences = " ".join(out.split()).partition("Best against best")[2]
    assert "at the largest, 0.8, F-SAM reaches" in sentences
    png = (tmp_path / "runs/demo/demo.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (1152, 710)
    page = (tmp_path / "runs/demo/demo.html").read_text()
    assert "Best against best" in page
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    # Again: nothing is trained, the result is the same; other settings need --fresh.
    assert main(arguments) == 0
    again = capsys.readouterr().out
    assert "14 are there already" in " ".join(again.split())
    assert table == [line for line in again.splitlines() if line[:5] in ("tuned", "ρ 0.1", "ρ 0.8")]
    assert main([*arguments[:-1], "2"]) == 2
    assert "--fresh forgets it" in capsys.readouterr().err


def test_the_demos_runs_differ_in_method_radius_and_seed_alone(tmp_path: Path) -> None:
    keys = demo_module._keys(3, (0.1, 0.8))
    assert len(keys) == len(set(keys)) == 3 * (3 + 2 * 2)
    configs = [demo_module._config(tmp_path, *key, epochs=30) for key in keys]
    assert {c.data for c in configs} == {configs[0].data}
    swept = [c for key, c in zip(keys, configs, strict=True) if key[1] is not None]
    assert {c.base for c in swept} == {swept[0].base}
    assert configs[0].data.label_noise == 0.6
    assert configs[0].data.train_size == 1000
