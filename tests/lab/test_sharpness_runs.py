"""The sharpness of recorded runs: measured once, compared on a page, mistakes told in a line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from lab_runs import checkpoint, tiny_config

from friendly_sam.lab.cli.sharpness import run as sharpness
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.sharpness.densities import _broadened, at_one_width
from friendly_sam.lab.sharpness.landscape import landscape, path_between
from friendly_sam.lab.sharpness.measured import Measured, rises_table
from friendly_sam.lab.sharpness.spectrum import measure
from friendly_sam.lab.sharpness.subject import subject
from friendly_sam.lab.training.trainer import train
from friendly_sam.sharpness import top_eigenpairs

QUICK = {"data_size": 60, "steps": 5, "probes": 1, "trace_probes": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two methods, two seeds each, trained until they have learned something."""
    folder = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    for method in ("sam", "fsam"):
        for seed in (0, 1):
            name = f"{method}-<b>{seed}</b>".replace("/", "∕")
            train(tiny_config(folder / name, method={"name": method}, epochs=6, seed=seed))
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    return sorted((tmp_path / "runs").iterdir())


def test_a_run_is_measured_once(runs, monkeypatch):
    found = measure(runs[0], **QUICK)
    assert found["lambda1"] == found["eigenvalues"][0]
    assert len(found["eigenvalues"]) == 5
    assert found["ratio"] == pytest.approx(found["eigenvalues"][0] / found["eigenvalues"][4])
    x, y = (torch.tensor(found["density"][axis]) for axis in "xy")
    assert float(torch.trapezoid(y, x)) == pytest.approx(1, abs=0.01)
    assert found["images"] == 60
    assert json.loads((runs[0] / "sharpness.json").read_text()) == found
    monkeypatch.setattr("friendly_sam.lab.sharpness.spectrum.subject", None)
    assert measure(runs[0], **QUICK) == found


def test_a_batch_that_holds_all_images_has_no_noise_to_show(runs):
    run = read_run(runs[0])
    around = {"rises": {n: {"mean": 0.5} for n in ("full", "batch", "friendly", "random")}}
    for images, shown in ((run.config.data.batch_size, "-"), (10_000, "0.5")):
        one = Measured(run=run, spectrum={"images": images}, landscape=around | {"worst": 1.0})
        (row,) = rises_table([one]).rows
        assert row[1:] == ["0.5", shown, shown, "0.5", "1"]


def test_other_settings_other_weights_or_a_damaged_file_are_measured_again(runs):
    first = measure(runs[0], **QUICK)
    assert len(measure(runs[0], top=2, **QUICK)["eigenvalues"]) == 2
    (runs[0] / "sharpness.json").write_text("{")
    assert measure(runs[0], **QUICK) == first
    shutil.rmtree(runs[0] / "checkpoints")
    shutil.copytree(runs[1] / "checkpoints", runs[0] / "checkpoints")
    assert measure(runs[0], **QUICK)["lambda1"] != first["lambda1"]


def test_it_is_the_spectrum_of_the_last_weights_on_the_labels_trained_on(runs):
    examined = subject(runs[0], data_size=10_000)
    assert examined.objective.samples == 250
    saved = torch.load(checkpoint(runs[0]), weights_only=True)["model"]
    state = examined.model.state_dict()
    assert all(torch.equal(state[name], saved[name]) for name in saved)
    found = top_eigenpairs(subject(runs[0], data_size=60).objective, 5)
    assert measure(runs[0], **QUICK)["lambda1"] == pytest.approx(found.sharpness, rel=1e-5)


def test_runs_of_one_seed_are_measured_on_the_same_images(runs):
    first, second = (subject(runs[i], data_size=40).batches for i in (0, 2))
    assert torch.equal(first[0][0], second[0][0])


def test_progress_goes_up_to_its_end(runs):
    heard = []
    measure(runs[0], **QUICK, progress=lambda done, most: heard.append((done, most)))
    done = [pair[0] for pair in heard]
    assert done == list(range(1, len(done) + 1))
    assert heard[-1][0] == heard[-1][1]


def test_the_landscape_and_paths(runs):
    around = landscape(runs[0], rho=0.1, data_size=60, grid=3)
    assert len(around["plane"]["losses"]) == 3
    assert around["random"]["losses"][2] == pytest.approx(around["plane"]["losses"][1][1])
    assert around["rises"]["full"]["mean"] > around["rises"]["random"]["mean"]
    assert around["worst"] >= around["rises"]["full"]["mean"] - 1e-9
    assert around == landscape(runs[0], rho=0.1, data_size=60, grid=3)
    path = path_between(runs[0], runs[2], data_size=60)
    assert path["x"][0] == 0
    assert path["x"][-1] == 1
    middle = around["plane"]["losses"][1][1]
    assert path["losses"][0] == pytest.approx(middle)


def test_densities_are_brought_to_one_width():
    """A Gaussian of width 1, brought to width 2, is the Gaussian of width 2."""

    def gaussian(width, x):
        return torch.exp(-0.5 * (x / width) ** 2) / (width * (2 * torch.pi) ** 0.5)

    x = torch.linspace(-12, 12, 481, dtype=torch.float64)
    density = {"x": x.tolist(), "y": gaussian(1.0, x).tolist(), "width": 1.0}
    wide_x, wide_y = (torch.tensor(a, dtype=torch.float64) for a in _broadened(density, 2.0))
    torch.testing.assert_close(wide_y, gaussian(2.0, wide_x), rtol=1e-4, atol=1e-6)
    assert _broadened(density, 1.0) == (density["x"], density["y"])
    wide = {"x": wide_x.tolist(), "y": wide_y.tolist(), "width": 2.0}
    first, second = at_one_width([density, wide])
    assert first == (wide["x"], wide["y"])
    assert second == (wide["x"], wide["y"])


def test_the_page_has_all_runs_and_escapes_their_names(runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    code = sharpness([*map(str, runs), "--images", "60", "--grid", "3", "--output", str(page)])
    assert code == 0
    html = page.read_text()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert "[picture" not in html
    assert html.count("data:image/svg+xml") == 14  # six, light and dark; a phone has its planes
    assert "http" not in html.replace("http://www.w3.org", "")
    out = capsys.readouterr().out
    assert "paper's claim" in out
    assert "n = 2" in out
    names = {path.name for path in tmp_path.iterdir()}
    assert {"page-density-digits.png", "page-landscape-digits.svg", "page-1.svg"} <= names
    assert max(len(line) for line in out.splitlines() if not line.startswith("Page: ")) <= 100


def test_a_run_that_did_not_learn_is_flagged_and_judges_nothing(runs, tmp_path, capsys):
    """A radius of 30 keeps the loss at a constant guess, where everything is flat."""
    dead = tmp_path / "dead"
    train(tiny_config(dead, method={"name": "sam", "rho": 30.0}, epochs=1))
    folders = [str(dead), str(runs[1]), "--images", "60", "--grid", "3"]
    assert sharpness([*folders, "--output", str(tmp_path / "page.html")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Did not learn: dead (its loss is that of a constant guess)" in out
    assert "Give one setting of SAM and one of F-SAM" in out
    found = measure(dead, data_size=60)
    counts = torch.bincount(torch.cat([y for _, y in subject(dead, data_size=60).batches]))
    shares = counts[counts > 0] / 60
    assert found["constant_loss"] == pytest.approx(-(shares * shares.log()).sum().item())


def test_runs_on_other_data_have_figures_of_their_own(runs, tmp_path):
    other = tmp_path / "other"
    train(tiny_config(other, data={"train_size": 100}, epochs=1))
    folders = [str(runs[0]), str(other), "--images", "60", "--grid", "3"]
    assert sharpness([*folders, "--output", str(tmp_path / "page.html")]) == 0
    names = {path.name for path in tmp_path.glob("page-landscape-*.png")}
    assert names == {f"page-landscape-digits--train-size-{n}.png" for n in (250, 100)}
    assert "between two runs" not in (tmp_path / "page.html").read_text()


def test_one_run_alone_makes_a_page(runs, tmp_path):
    page = tmp_path / "one.html"
    assert sharpness([str(runs[0]), "--images", "30", "--grid", "3", "--output", str(page)]) == 0
    assert "Give one setting of SAM and one of F-SAM" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["{run}", "--images", "0"], "--images must be at least 1"),
        (["{run}", "--rho", "-1"], "--rho must be greater than 0"),
        (["{run}", "--rho", "nan"], "--rho must be greater than 0"),
        (["{run}", "--mode", "train"], "invalid choice"),
        ([], "required: RUN"),
    ],
)
def test_mistakes_end_in_one_line(runs, arguments, words):
    with pytest.raises(LabError, match=words):
        sharpness([argument.format(run=runs[0]) for argument in arguments])


def test_a_run_without_a_checkpoint_is_told(runs):
    shutil.rmtree(runs[0] / "checkpoints")
    with pytest.raises(LabError, match="has no checkpoint yet"):
        measure(runs[0], **QUICK)


def test_the_command_is_registered(fsam):
    result = fsam("sharpness", "--help")
    assert result.returncode == 0
    assert "fsam sharpness runs" in result.stdout
    failed = fsam("sharpness", "nowhere")
    assert failed.returncode == 2
    assert failed.stderr == "fsam: error: nowhere does not exist\n"
    assert not Path("sharpness.html").exists()
