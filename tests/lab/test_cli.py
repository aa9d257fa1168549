from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from lab_runs import Fsam, Tiny

from friendly_sam.lab.cli import dispatch, main
from friendly_sam.lab.cli.dispatch import COMMANDS
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.presets import PRESETS, preset
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_dict
from friendly_sam.lab.data.network import hub_is_named
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.runner.progress import RunProgress
from friendly_sam.lab.training.interrupts import Stopped
from friendly_sam.lab.training.trainer import train

FAST = ["--engine.threads", "1", "--engine.tensorboard", "false", "--epochs", "1"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_fits_a_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code in (0, None)
    text = capsys.readouterr().out
    assert "example" in text
    assert f"fsam {command}" in text
    assert [line for line in text.splitlines() if len(line) > 100] == []
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "\\x" not in text, "a control character, spelt out"
    assert " --data CONFIG" not in text, "a section is no option"


@pytest.mark.parametrize(
    ("command", "how"), [("train", "--resume"), ("reproduce", "the same command")]
)
def test_a_command_stopped_by_sigterm_says_how_to_go_on(
    command: str, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(arguments: object) -> None:
        raise Stopped

    monkeypatch.setattr(dispatch, "_dispatch", stopped)
    assert main([command]) == 143
    line = f"fsam: stopped by SIGTERM, nothing is lost: {how} goes on at the last step\n"
    assert capsys.readouterr().err == line


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in text
        assert summary in text


def test_the_commands_module_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import friendly_sam; base = set(sys.modules);"
        "import friendly_sam.lab.cli; new = set(sys.modules) - base;"
        "print([m for m in ('yaml', 'jsonargparse', 'rich', 'matplotlib', 'datasets', 'scipy')"
        " if m in new])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_list_shows_everything_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0] for line in lines if line.startswith("  ")}
    assert shown >= {*METHODS, *PRESETS, "digits", "cifar10", "mlp", "resnet18", "hf:NAME"}
    assert all(len(line.split()) > 2 for line in lines if line.startswith("  "))


def test_a_printed_config_starts_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "--preset", "digits-mlp-sam", "--method.rho", "0.3", "--print_config"])
    assert caught.value.code in (0, None)
    printed = yaml.safe_load(capsys.readouterr().out)
    config = from_dict(printed)
    assert config.method.rho == 0.3
    assert config.data == preset("digits-mlp-sam").data
    Path("again.yaml").write_text(yaml.safe_dump(printed))
    assert main(["train", "--config", "again.yaml", *FAST, "--output", "run"]) == 0
    assert read_run(Path("run")).config.method.rho == 0.3


def test_train_says_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "digits-mlp-fsam", *FAST]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "run folder: runs/digits-mlp-fsam-rho0.2-noise0.6-seed0"
    assert out[1].startswith("epoch 1/1  train loss")
    folder = "runs/digits-mlp-fsam-rho0.2-noise0.6-seed0"
    accuracy = read_run(Path(folder)).final("test_accuracy")
    assert out[2] == f"finished: {folder}  test {accuracy:.2f} %"
    assert out[3].startswith("the best checkpoint was chosen on the test")
    assert out[4] == f"next: fsam report {folder}"
    assert (
        main(["train", "--resume", "--output", "runs/digits-mlp-fsam-rho0.2-noise0.6-seed0"]) == 0
    )
    assert capsys.readouterr().out.startswith(f"was finished already: {folder}")


def test_a_run_that_did_not_learn_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "digits-mlp-fsam", "--method.rho", "30", *FAST]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("it did not learn")
    assert "five times smaller than 30" in lines[-2]
    assert main(["train", "--preset", "digits-mlp-sgd", *FAST, "--base.lr", "1e-6"]) == 0
    assert "radius" not in capsys.readouterr().out.splitlines()[-2]


@pytest.mark.parametrize("method", ["sgd", "sam", "fsam"])
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_the_presets_of_digits_learn(network: str, method: str) -> None:
    epochs = ["--epochs", "4", "--engine.tensorboard", "false", "--output", "run"]
    assert main(["train", "--preset", f"digits-{network}-{method}", *epochs]) == 0
    assert read_run(Path("run")).final("test_accuracy") > 50


def test_nothing_is_said_of_test_images_where_validation_chose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--data.train_size", "800", "--data.validation_size", "200", *FAST]
    assert main(["train", "--preset", "digits-mlp-sgd", *given]) == 0
    assert "chosen on the test" not in capsys.readouterr().out


def test_a_run_that_will_take_hours_on_a_cpu_says_so_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 8))  # eight seconds a step
    monkeypatch.setattr("friendly_sam.lab.runner.progress.time.monotonic", lambda: next(clock))
    progress = RunProgress(preset("cifar10-resnet18-fsam"))
    for batch in range(1, 8):
        progress.step(1, batch, 391)
    err = capsys.readouterr().err
    assert err.count("left on this CPU") == 1
    assert "about 173 h" in err
    assert all(words.startswith(("CPU", "GPU")) for words in PRESETS.values())


def test_a_preset_for_a_gpu_says_so_before_it_reads_its_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["--preset", "cifar10-resnet18-fsam", "--engine.device", "cpu"]
    assert main(["train", *names, "--data.root", "nowhere"]) == 2
    assert "cifar10-resnet18-fsam is meant for a GPU" in capsys.readouterr().err
    assert main(["train", "--preset", "digits-mlp-fsam", "--data.root", "nowhere"]) == 2
    assert "GPU" not in capsys.readouterr().err


def test_every_command_says_its_default_folder_or_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("demo", "reproduce", "sharpness", "report", "bench", "selftest"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.partition("\noptions:")[2].split())
        assert "(default" in text.partition("--output")[2][:120], command


def test_without_a_network_the_hub_is_not_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line at once, in the place of five tries with growing pauses."""
    datasets, hub = pytest.importorskip("datasets"), pytest.importorskip("huggingface_hub")

    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("friendly_sam.lab.data.network.socket.getaddrinfo", unknown)
    monkeypatch.setattr("friendly_sam.lab.data.network.getproxies", dict)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    hub_is_named.cache_clear()
    start = time.monotonic()
    assert main(["train", "--data.name", "nobody/nothing", "--model.name", "resnet8"]) == 1
    hub_is_named.cache_clear()
    assert time.monotonic() - start < 20  # five tries take more
    (line,) = capfd.readouterr().err.splitlines()
    assert "cannot load 'nobody/nothing' from the Hugging Face hub" in line


BAD = [
    (["fly"], "unknown command 'fly': choose from demo, train"),
    (["trian"], "unknown command 'trian' (did you mean train?): choose from"),
    (["train", "--rho", "0.1"], "--rho 0.1 (did you mean --method.rho?)"),
    (["train", "--noise", "0.1"], "unrecognized arguments: --noise"),
    (["train", "--data", "cifar10"], "--data cifar10 (did you mean --data.name?)"),
    (["train", "--noise", "0.2"], "--noise 0.2 (did you mean --data.label_noise?)"),
    (["train", "--learning-rate", "1"], "--learning-rate 1 (did you mean --base.lr?)"),
    (["train", "--optimzer", "sam"], "unrecognized arguments: --optimzer sam"),
    (["train", "--method.name", "F-SAM"], "unknown method 'F-SAM' (did you mean fsam?)"),
    (["tune", "--trials", "x"], "--trials must be a whole number, got 'x'"),
    (["tune", "--trials", "1"], "--trials must be at least 2, got 1"),
    (["tune", "--seeds", "0"], "--seeds must be at least 1, got 0"),
    (["tune", "--search", "method.rho=2:1"], "--search method.rho=2:1: a range needs 0 < low"),
    (["train", "--method.rhoo", "1"], "--method.rhoo 1 (did you mean --method.rho?)"),
    (["demo", "--sead=3"], "--sead=3 (did you mean --seeds?) (see fsam demo --help)"),
    (["train", "--preset", "cifar10-resnet18-fsm"], "did you mean cifar10-resnet18-fsam?"),
    (["train", "--preset"], "expected one argument"),
    (
        ["train", "--preset", "digits-mlp-sgd", "--method.rho", "1"],
        "does not apply to method base",
    ),
    (["train", "--data.name", "digitz", *FAST], "digitz"),
    (["train", "--model.name", "mpl", *FAST], "mlp"),
    (["train", "--data.name", "cifar10", "--data.root", "nowhere", *FAST], "nowhere"),
    (["train", "--data.train_size", "100", "--data.batch_size", "101", *FAST], "at most the 100"),
    (["train", "--data.train_size", "99999", *FAST], "99999"),
    (["train", "--output", "/proc/version/run", *FAST], "/proc/version"),
    (["train", "--output", "/dev/null", *FAST], "is a file, not a folder"),
    (["train", "--model.weights", "nowhere.pt", *FAST], "no checkpoint at nowhere.pt"),
    (["train", "--engine.device", "cuda:77", *FAST], "engine.device=cuda:77 cannot be used"),
    (["train", "--config", "nowhere.yaml"], "nowhere.yaml"),
    (["train", "--nonsense", "1"], "unrecognized arguments: --nonsense"),
    (["train", "--output"], "expected one argument (see fsam train --help)"),
    (["train", "--resume=yes"], "--resume: ignored explicit argument 'yes'"),
    (["train", "--preste", "x"], "--preste x (did you mean --preset?)"),
    (["train", "--resum"], "--resum (did you mean --resume?)"),
    (["tune", "--trial", "1"], "--trial 1 (did you mean --trials?)"),
    (["demo", "--workers", "-1"], "workers must be at least 1, got -1"),
    (["demo", "--workers", "0"], "workers must be at least 1, got 0"),
    (["reproduce", "--list", "--workers", "-1"], "--workers must be at least 1, got -1"),
    (["reproduce", "all", "tabel1"], "unknown experiment 'tabel1' (did you mean table1?)"),
    (["reproduce", "table1", "--slurm", "a=b"], "--slurm needs --cluster slurm"),
    (["report", "x", "--output", "."], "--output must name a file, such as report.html, not ."),
    (["sharpness", "x", "--output", "new/"], "--output must name a file"),
    (["report", "nowhere"], "nowhere does not exist"),
    (["report"], "required: RUN"),
    (["report", "."], "is not the folder of a run"),
    (["list", "nonsense"], "invalid choice: 'nonsense'"),
    (["demo", "--seeds", "0"], "--seeds must be at least 1, got 0 (see fsam demo --help)"),
    (["demo", "--seeds", "2147483648"], "--seeds must be between 1 and 10000, got 2147483648"),
    (["demo", "--seeds", "9" * 5000], "--seeds must be a whole number, got '999"),
    (["demo", "--radii", "0"], "--radii must be greater than 0, got 0.0"),
    (["demo", "--radii", "nan"], "--radii must be greater than 0 and at most 1e+09, got nan"),
    (["demo", "--seeds", "x"], "--seeds must be a whole number, got 'x'"),
    (["demo", "--epochs", "9" * 400], "--epochs must be between 1 and 1000000, got an integer"),
    (["demo", "--workers", "1000000"], "--workers must be between 1 and 1024, got 1000000"),
    (["bench", "--threads", "100000"], "--threads must be between 1 and 1024, got 100000"),
    (["sharpness", "x", "--grid", "10000000"], "--grid must be between 3 and 1001, got 10000000"),
    (["train", "--engine.threads", "100000"], "engine.threads must be between 1 and 1024, got"),
    (["train", "--engine.device", "meta", *FAST], "engine.device=meta cannot be used"),
    (["train", "--output", "a" * 300, *FAST], "a: File name too long"),
    (["report", "a\x1b[31mb"], r"a\x1b[31mb does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)
    out, error = capsys.readouterr()
    assert not out
    assert error.startswith("fsam: error: "), error
    assert message in error
    assert error.count("\n") == 1
    assert code == 2
    assert not list(Path().iterdir())


def test_a_run_that_fails_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", *FAST, "--base.lr", "1e9", "--model.name", "cnn", "--output", "run"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("fsam: error: the loss is ")
    assert error.count("\n") == 1


def test_real_processes_end_with_those_codes(fsam: Fsam) -> None:
    bad = fsam("train", "--preset", "digits-mlp-fsm")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.splitlines() == [
        "fsam: error: unknown preset 'digits-mlp-fsm' (did you mean digits-mlp-fsam?): "
        "`fsam list presets` shows them all"
    ]
    assert fsam("--version").stdout.strip()


def test_a_disk_that_fills_up_is_one_line_and_leaves_no_finished_run(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from friendly_sam.lab.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *FAST, "--output", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("fsam: error: cannot write checkpoint run/checkpoints/")
    run = read_run(tmp_path / "run")
    assert run.state == "failed"
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_report_reads_any_runs(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(2):
        for method in ("base", "fsam"):
            train(tiny(f"runs/{method}{seed}", method={"name": method}, seed=seed))
    assert main(["report", "runs", "--output", "out/page.html"]) == 0
    out = capsys.readouterr().out
    assert "SGD" in out
    assert "F-SAM" in out
    names = {path.name for path in Path("out").iterdir()}
    figures = {f"page-{n}.{k}" for n in (1, 2) for k in ("png", "svg")}
    assert names == {"page.html", "page.csv", "page.json", *figures}


def test_defaults_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *FAST]) == 0
    assert RunConfig().method.name == "fsam"
