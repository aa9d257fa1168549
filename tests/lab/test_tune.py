"""A search gives one choice: twice, by several processes, after a kill."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab_runs import Tiny
from PIL import Image

from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.tune import default_space, read_space, tune_run
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.search.space import Choice, Range, Settings, points
from friendly_sam.lab.search.study import JOURNAL, open_study, write_journal
from friendly_sam.lab.search.tune import tune

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SPACE = {"lr": Range(0.001, 1.0), "kind": Choice(("a", "b"))}


def score(settings: Settings) -> float:
    """Return a number that is highest at 0.1 and b."""
    lr = float(settings["lr"])
    return -abs(lr - 0.1) + (0.01 if settings["kind"] == "b" else 0.0)


def counting(folder: Path) -> Callable[[Settings], float]:
    """Return an objective that notes each call in a file."""

    def objective(settings: Settings) -> float:
        with (folder / "calls").open("a") as file:
            file.write(f"{settings}\n")
        return score(settings)

    return objective


def calls(folder: Path) -> list[str]:
    """List the settings that were tried."""
    return (folder / "calls").read_text().splitlines()


def test_the_same_search_twice_gives_the_same_choice(tmp_path: Path) -> None:
    first = tune(score, SPACE, trials=10, folder=tmp_path / "first")
    second = tune(score, SPACE, trials=10, folder=tmp_path / "second")
    assert first == second
    assert len(first.trials) == len({str(t.settings) for t in first.trials}) == 10
    assert first.best.value == max(t.value or 0 for t in first.trials)
    assert set(first.importance) == {"lr", "kind"}


def test_a_search_that_is_done_tries_nothing_again(tmp_path: Path) -> None:
    first = tune(counting(tmp_path), SPACE, trials=5, folder=tmp_path)
    assert tune(counting(tmp_path), SPACE, trials=5, folder=tmp_path) == first
    assert len(calls(tmp_path)) == 5


@pytest.mark.parametrize("killed_in", [1, 4, 8])
def test_killed_and_resumed_it_chooses_the_same(tmp_path: Path, killed_in: int) -> None:
    whole = tune(score, SPACE, trials=8, folder=tmp_path / "whole")
    child = os.fork()
    if child == 0:  # no clean-up at all, as after SIGKILL

        def dies(settings: Settings) -> float:
            found = counting(tmp_path)(settings)
            if len(calls(tmp_path)) == killed_in:
                os._exit(9)
            return found

        tune(dies, SPACE, trials=8, folder=tmp_path)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert tune(counting(tmp_path), SPACE, trials=8, folder=tmp_path) == whole
    assert len(calls(tmp_path)) == 8 + 1, "only the one that was cut off is tried again"


def test_several_processes_share_a_search(tmp_path: Path) -> None:
    def slowly(settings: Settings) -> float:
        time.sleep(0.05)
        return counting(tmp_path)(settings)

    whole = tune(score, SPACE, trials=8, folder=tmp_path / "whole")
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os._exit(0 if tune(slowly, SPACE, trials=8, folder=tmp_path) == whole else 1)
        children.append(child)
    assert tune(slowly, SPACE, trials=8, folder=tmp_path) == whole
    assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [0, 0]
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 8, "nothing is tried twice"


def test_a_trial_that_fails_loses_and_is_not_tried_again(tmp_path: Path) -> None:
    def fails(settings: Settings) -> float:
        counting(tmp_path)(settings)
        if settings["kind"] == "b":
            raise RuntimeError("loss is NaN")
        return score(settings)

    found = tune(fails, SPACE, trials=6, folder=tmp_path)
    assert found.best.settings["kind"] == "a"
    assert [t.value is None for t in found.trials] == [
        t.settings["kind"] == "b" for t in found.trials
    ]
    tune(fails, SPACE, trials=6, folder=tmp_path)
    assert len(calls(tmp_path)) == 6


def test_a_folder_with_another_search_is_refused(tmp_path: Path) -> None:
    tune(score, SPACE, trials=2, folder=tmp_path)
    with pytest.raises(LabError, match="holds a search over other settings"):
        tune(score, {**SPACE, "lr": Range(0.1, 1.0)}, trials=2, folder=tmp_path)
    with pytest.raises(LabError, match="holds a search of something else"):
        tune(score, SPACE, trials=2, folder=tmp_path, subject="another network")


@pytest.mark.parametrize(("first", "then"), [(5, 10), (10, 5)])
def test_with_another_number_of_trials_known_points_are_kept(
    first: int, then: int, tmp_path: Path
) -> None:
    fresh = tune(score, SPACE, trials=then, folder=tmp_path / "fresh")
    known = tune(counting(tmp_path), SPACE, trials=first, folder=tmp_path)
    again = tune(counting(tmp_path), SPACE, trials=then, folder=tmp_path)
    assert again == fresh
    both = {str(trial.settings) for found in (known, again) for trial in found.trials}
    assert len(calls(tmp_path)) == len(both) < first + then, "a known point is not tried again"


def test_a_line_that_a_kill_cut_short_is_done_again(tmp_path: Path) -> None:
    whole = tune(counting(tmp_path), SPACE, trials=5, folder=tmp_path)
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-20])
    assert tune(counting(tmp_path), SPACE, trials=5, folder=tmp_path) == whole
    assert len(calls(tmp_path)) == 6
    path.write_bytes(path.read_bytes()[:20])
    assert tune(score, SPACE, trials=5, folder=tmp_path) == whole
    path.write_bytes(b"somebody's own, without a line")
    with pytest.raises(LabError, match="is damaged: delete it"):
        tune(score, SPACE, trials=5, folder=tmp_path)
    assert path.read_bytes() == b"somebody's own, without a line"


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: {"lr": (0.01, 1.0)}, "lr must be a Range or a Choice, got"),
    (dict, "space must name at least one setting"),
    (lambda: {"n": Range(0.5, 3, whole=True)}, "whole numbers needs whole ends, got 0.5 to 3"),
    (lambda: {"lr": Range(0.01, float("inf"))}, "0 < low < high, got 0.01 to inf"),
    (lambda: {"lr": Range("0.1", 1.0)}, "low of a range must be a number, got '0.1'"),  # type: ignore[arg-type]
    (lambda: {"kind": Choice(((1, 2), (3, 4)))}, "numbers, texts and truths"),  # type: ignore[arg-type]
    (lambda: {"kind": Choice("ab")}, "a choice needs a tuple of values, got 'ab'"),  # type: ignore[arg-type]
    (lambda: {"kind": Choice(())}, "at least one value, got none"),
]


@pytest.mark.parametrize(("space", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_no_space_is_refused(
    space: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(LabError, match=message):
        tune(counting(tmp_path), space(), trials=3, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("trials", [1, "5", 2.5, True])
def test_a_number_of_trials_is_a_whole_number_of_at_least_2(trials: Any, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=f"trials must be a whole number .* got {trials!r}"):
        tune(score, SPACE, trials=trials, folder=tmp_path)


def test_a_list_of_values_is_a_choice() -> None:
    assert Choice(["a", "b"]) == Choice(("a", "b"))  # type: ignore[arg-type]


def test_why_every_trial_failed_is_said(tmp_path: Path) -> None:
    def fails(settings: Settings) -> float:
        raise ValueError("classes must be at least 2")

    with pytest.raises(LabError, match="failed, the first: classes must be at least 2"):
        tune(fails, SPACE, trials=3, folder=tmp_path)
    with pytest.raises(LabError, match="failed, the first: its value is inf"):
        tune(lambda settings: float("inf"), SPACE, trials=3, folder=tmp_path / "inf")


def test_whole_numbers_are_searched_as_such(tmp_path: Path) -> None:
    space = {"epochs": Range(2, 40, whole=True), "kind": Choice(("a", "b"))}
    tried = []

    def objective(settings: Settings) -> float:
        tried.append(settings)
        return -abs(float(settings["epochs"]) - 30)

    found = tune(objective, space, trials=10, folder=tmp_path)
    assert all(type(settings["epochs"]) is int for settings in tried)
    assert len(tried) == len({str(settings) for settings in tried}) == 10
    assert tune(objective, space, trials=10, folder=tmp_path) == found
    assert len(tried) == 10, "what was found is read back from the journal as it was"
    assert set(found.importance) == {"epochs", "kind"}


def test_a_small_space_is_tried_once_and_no_more(tmp_path: Path) -> None:
    space = {"batches": Range(1, 2, whole=True), "kind": Choice(("a", "b", "c"))}
    both = [{"batches": n, "kind": kind} for n in (1, 2) for kind in "abc"]
    found = points(space, 10)
    assert sorted(map(str, found)) == sorted(map(str, both))
    chosen = tune(counting_kinds, {"kind": Choice((0.125, 0.0625))}, trials=9, folder=tmp_path)
    assert [t.settings["kind"] for t in chosen.trials] == [0.0625, 0.125]


def counting_kinds(settings: Settings) -> float:
    """Return a number that is highest at the largest."""
    return float(settings["kind"])


def test_a_range_is_not_left_where_no_setting_may_lie(tiny: Tiny) -> None:
    space = read_space(["base.momentum=0.9:0.9996", "base.lr=1:2"], tiny())
    momentum, rate = space["base.momentum"], space["base.lr"]
    assert isinstance(momentum, Range)
    assert isinstance(rate, Range)
    assert momentum.around(0.99).high == momentum.rounded(0.99957) == 0.9996
    assert momentum.around(0.9).low < 0.9
    assert rate.around(2).high > 2
    assert not rate.whole


def test_points_are_those_of_a_longer_search_and_fill_the_space() -> None:
    space = {"lr": Range(0.01, 1.0), "rho": Range(0.1, 0.4)}
    many = points(space, 16)
    assert many[:5] == points(space, 5)
    assert [p["lr"] for p in many] == [p["lr"] for p in points({"lr": Range(0.01, 1.0)}, 16)]
    for low, high in ((0.01, 0.032), (0.032, 0.1), (0.1, 0.32), (0.32, 1.0)):
        assert any(low <= float(p["lr"]) <= high for p in many)


def test_searches_of_experiments_are_a_journal_that_optuna_reads(tmp_path: Path) -> None:
    trials = [({"base.lr": 0.1, "kind": "a"}, 80.0), ({"base.lr": 0.2, "kind": "a"}, 90.0)]
    write_journal(tmp_path / JOURNAL, {"task: SGD": trials})
    study = open_study(tmp_path / JOURNAL, "task: SGD")
    assert study.best_value == 90
    assert study.best_params == {"base.lr": 0.2, "kind": "a"}


VALIDATED = {"validation_size": 100, "label_noise": 0.4}


def test_a_run_is_tuned_on_validation_images(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(epochs=1, data=VALIDATED)
    space = read_space(["base.lr=1e-6:0.1", "method.decay=0.6,0.9"], config)
    found = tune_run(config, space, tmp_path / "tuned", trials=3, seeds=1)
    runs = [read_run(folder) for folder in (tmp_path / "tuned" / "runs").iterdir()]
    assert len(runs) == 3
    assert not any(run.series("test_accuracy") for run in runs), "a trial looked at the test"
    assert float(found.best.settings["base.lr"]) > 1e-4, "nothing is learnt below"


def test_a_folder_with_the_search_of_another_method_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    space = read_space(["base.lr=0.01:0.1"], tiny())
    folder = tmp_path / "tuned"
    tune_run(tiny(epochs=1, data=VALIDATED), space, folder, trials=2, seeds=1)
    for other in ({"method": {"name": "sam"}}, {"epochs": 2}):
        with pytest.raises(LabError, match="holds a search of something else"):
            tune_run(
                tiny(**{"epochs": 1, "data": VALIDATED, **other}), space, folder, trials=2, seeds=1
            )
    with pytest.raises(LabError, match="holds a search of something else"):
        tune_run(tiny(epochs=1, data=VALIDATED), space, folder, trials=2, seeds=2)


def test_a_mistake_of_the_user_stops_the_search_and_can_be_mended(tmp_path: Path) -> None:
    def mistaken(settings: Settings) -> float:
        raise LabError("there is no data in nowhere")

    with pytest.raises(LabError, match="no data in nowhere"):
        tune(mistaken, SPACE, trials=3, folder=tmp_path)
    assert tune(score, SPACE, trials=3, folder=tmp_path).best.value is not None


def test_a_value_that_is_not_a_number_loses_the_trial(tmp_path: Path) -> None:
    def sometimes(settings: Settings) -> float:
        return float("nan") if settings["kind"] == "b" else score(settings)

    found = tune(sometimes, SPACE, trials=6, folder=tmp_path)
    assert found.best.settings["kind"] == "a"


def test_the_command_ends_with_the_command_to_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "tune --preset digits-mlp-sam --data.train_size 100 --data.validation_size 100"
    more = f"--epochs 1 --trials 2 --seeds 1 --search method.rho=0.1:0.2 --output {tmp_path}/o"
    assert main([*words.split(), *more.split()]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("  fsam train --preset digits-mlp-sam --data.train_size 100")
    assert "--method.rho 0." in last
    assert "--trials" not in last
    assert str(tmp_path) not in last


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "data.validation_size is 0"),
        ("--search method.rho", "--search takes NAME=LOW:HIGH"),
        ("--search method.rh=0.1:1", "unknown setting 'method.rh' (did you mean method.rho?)"),
        ("--search method.rho=1:0.1", "0 < low < high, got 1 to 0.1"),
        ("--search method.decay=0.5,2", "method.decay must be at least 0 and below 1, got 2"),
        ("--search method.rho=a:b", "method.rho must be a number or null, got a"),
        ("--search base.lr=abc", "base.lr must be a number, got abc"),
        ("--search base.lr=0.1:", "base.lr must not be null"),
        ("--search data.flip=false:true", "'false' is not a number, and a range needs two"),
        ("--search data.batch_size=32.5:64", "data.batch_size must be a whole number, got 32.5"),
        ("--search data.label_noise=0:0.4", "0 < low < high, got 0 to 0.4"),
        ("--search method.rho=null,0.1", "method.rho cannot be searched for"),
        ("--search data=1:2", "data is a group of settings, name one of them"),
        ("--search seed=1:5", "seed is set by the search itself"),
        ("--search base.lr=0.1,0.2 base.lr=0.1:1", "base.lr is named twice"),
        ("--search base.lr=0.1,0.2 --search base.lr=0.1:1", "base.lr is named twice"),
        ("--search base.lr=.1:1:2", "a range has two ends, got 3"),
        ("--data.name cifra10 --data.validation_size 9", "unknown data set 'cifra10'"),
        ("--data.validation_size 5000", "validation_size must be at most"),
        ("--data.validation_size 9 --seeds 0", "--seeds must be at least 1, got 0"),
        ("--data.validation_size 9 --trials 1", "trials must be at least 2, got 1"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["tune", "--preset", "digits-mlp-fsam", "--output", str(tmp_path / "o")]
    assert main([*command, *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o" / "runs").exists()


def test_other_data_is_another_search(tiny: Tiny, tmp_path: Path) -> None:
    for name in ("a", "b"):
        for label in range(2):
            (tmp_path / name / "train" / str(label)).mkdir(parents=True)
            for number in range(9):
                shade = Image.new("L", (8, 8), 100 * label + number)
                shade.save(tmp_path / name / "train" / str(label) / f"{number}.png")
        shutil.copytree(tmp_path / name / "train", tmp_path / name / "test")

    def search(name: str) -> None:
        data = {"name": "mine", "root": str(tmp_path / name), "validation_size": 4,
                "train_size": None, "test_size": None, "batch_size": 4}  # fmt: skip
        run = tiny(epochs=1, data=data)
        space = read_space(["base.lr=0.01:0.1"], run)
        tune_run(run, space, tmp_path / "tuned", trials=2, seeds=1)

    search("a")
    search("a")
    with pytest.raises(LabError, match="holds a search of something else"):
        search("b")


@pytest.mark.parametrize(
    ("output", "last"),
    [
        (["--output", "{}/o"], ""),
        (["--output={}/o"], ""),
        (["--config", "{}/mine.yaml"], "--output {}/o/chosen"),
    ],
)
def test_the_command_to_use_writes_elsewhere(
    output: list[str], last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(f"output: {tmp_path}/o\n")
    words = "tune --epochs 1 --data.train_size 200 --data.validation_size 100 --trials 2 --seeds 1"
    assert main([*words.split(), *(word.format(tmp_path) for word in output)]) == 0
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert ("--output" in command) == bool(last)
    assert last.format(tmp_path) in " ".join(command)
    assert "--data.validation_size 100" in " ".join(command)
    more = [] if last else ["--output", str(tmp_path / "mine")]
    assert main([*command[1:], *more]) == 0


def test_the_base_optimizer_has_no_radius_to_search(tiny: Tiny) -> None:
    assert list(default_space(tiny(method={"name": "base"}))) == ["base.lr", "base.weight_decay"]
    assert "method.rho" in default_space(tiny())


LINES = ["garbage", "[" * 100_000, "[1]", '{"op_code": ' + "9" * 400 + "}", "\xff"]


@pytest.mark.parametrize("line", LINES, ids=["text", "deep", "list", "huge", "bytes"])
def test_a_journal_of_others_is_one_line(line: str, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(f"{line}\n", encoding="latin-1")
    with pytest.raises(LabError, match=rf"{JOURNAL} is damaged: delete it") as refusal:
        tune(score, SPACE, trials=2, folder=tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_journal_without_end_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / JOURNAL).open("wb") as file:
        file.truncate(10 << 40)  # ten terabytes that take no room
    began = time.monotonic()
    with pytest.raises(LabError, match=rf"{JOURNAL} is damaged: delete it"):
        open_study(tmp_path / JOURNAL, "tune")
    assert time.monotonic() - began < 10


def test_a_trial_that_the_search_did_not_make_is_one_line(tmp_path: Path) -> None:
    open_study(tmp_path / JOURNAL, "tune").ask()
    with pytest.raises(LabError, match=rf"{JOURNAL} is damaged: delete it"):
        tune(score, SPACE, trials=2, folder=tmp_path)


@pytest.mark.parametrize(
    "attributes",
    [{"error": [1], "settings": "{}"}, {"error": "", "settings": "[" * 100_000},
     {"error": "", "settings": "[1]"}, {"settings": "{}"}, {"error": "", "settings": 3}],
)  # fmt: skip
def test_a_trial_of_another_shape_is_one_line(attributes: dict[str, Any], tmp_path: Path) -> None:
    import optuna

    study = open_study(tmp_path / JOURNAL, "tune")
    study.add_trial(optuna.trial.create_trial(value=1.0, user_attrs=attributes))
    with pytest.raises(LabError, match=rf"{JOURNAL} is damaged: delete it"):
        tune(score, SPACE, trials=2, folder=tmp_path)


def test_a_search_where_nothing_can_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / JOURNAL)
    for name, reason in (
        ("file/below", "is below .*file, a file, not a folder"),
        ("link/below", "link is a link to nothing"),
        ("folder", f"{JOURNAL} is not a regular file"),
    ):
        with pytest.raises(LabError, match=reason):
            tune(score, SPACE, trials=2, folder=tmp_path / name)
