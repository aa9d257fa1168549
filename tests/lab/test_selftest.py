"""`fsam selftest`: it passes here, says what it did not try, and notices a broken promise."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import pytest
import torch

import friendly_sam.recipes
from friendly_sam import SharpnessAware
from friendly_sam.lab.bench.recipes import RECIPES
from friendly_sam.lab.cli import main
from friendly_sam.lab.cli.selftest import OUTPUT, checks
from friendly_sam.lab.promises import exact, plain
from friendly_sam.lab.promises.outcome import (
    BrokenPromiseError,
    Check,
    NotApplicableError,
    NotTriedError,
    Verdict,
    carry_out,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_passes_on_the_cpu_and_writes_a_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["selftest", "--device", "cpu", "--quick"]) == 0
    text, shown = OUTPUT.read_text(), capsys.readouterr().out
    for part in (f"torch         {torch.__version__}", "device        cpu, ", "0 FAILED"):
        assert part in text
        assert part in shown
    lines = text.splitlines()
    assert "not tried here  graph capture: needs CUDA" in lines
    assert f"ok              exact restore, bfloat16: {len(RECIPES)} recipes" in lines
    assert {"SGD", "SAM", "F-SAM", "ASAM"} <= {line.split(" ")[0] for line in lines}
    for private in (socket.gethostname(), getpass.getuser(), str(Path.cwd())):
        assert len(private) < 5 or private not in text


def named(name: str) -> Check:
    return next(check for check in checks(CPU, quick=True) if check.name.startswith(name))


def test_weights_that_do_not_come_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from friendly_sam.perturbation import Perturbation

    original = Perturbation.restore

    def restore(self: Perturbation) -> None:
        away = [parameter for parameter, _ in self._away]
        original(self)
        with torch.no_grad():
            for parameter in away:
                parameter.mul_(1 + 1e-6)

    monkeypatch.setattr(Perturbation, "restore", restore)
    outcome = carry_out(named("exact restore, float32"))
    assert outcome.verdict is Verdict.FAILED
    assert "SAM: weights after step 0 and before: differ by up to" in outcome.detail


def test_a_failure_is_exit_code_1_and_stands_in_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> list[Check]:
        def fails() -> str:
            raise BrokenPromiseError("SAM is off by 0.1")

        return [Check("formulas", fails)]

    monkeypatch.setattr("friendly_sam.lab.cli.selftest.checks", broken)
    assert main(["selftest", "--device", "cpu", "--quick"]) == 1
    assert "FAILED          formulas: SAM is off by 0.1" in OUTPUT.read_text().splitlines()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NotApplicableError("why"), Verdict.NOT_APPLICABLE),
        (NotTriedError("why"), Verdict.NOT_TRIED),
        (BrokenPromiseError("why"), Verdict.FAILED),
        (ZeroDivisionError("why"), Verdict.FAILED),
        (RuntimeError("two\nlines"), Verdict.FAILED),
    ],
)
def test_whatever_a_check_raises_is_one_line(error: Exception, verdict: Verdict) -> None:
    def run() -> str:
        raise error

    outcome = carry_out(Check("name", run))
    assert outcome.verdict is verdict
    assert "\n" not in outcome.line()


def test_a_wrong_formula_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(plain.FriendlySAM):
        def share(self, g: torch.Tensor) -> float:
            return 0.999

    monkeypatch.setitem(plain.FORMULAS, "F-SAM", Wrong)
    outcome = carry_out(named("formulas over 6 steps, float64"))
    assert outcome.verdict is Verdict.FAILED
    assert outcome.detail.startswith("F-SAM is off by")


def test_a_resume_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: SharpnessAware, state: dict[str, object]) -> None:
        self.base.load_state_dict(state)

    monkeypatch.setattr(SharpnessAware, "load_state_dict", forgetful)
    assert carry_out(named("resumed run")).verdict is Verdict.FAILED


def test_a_dtype_that_the_device_lacks_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_float64(*_: object) -> object:
        raise TypeError("no float64 here")

    monkeypatch.setattr(exact, "network", no_float64)
    outcome = carry_out(named("exact restore, float64"))
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "no float64 here" in outcome.detail


def test_every_recipe_is_checked_against_its_formula() -> None:
    assert plain.FORMULAS.keys() == RECIPES.keys()
    classes = {
        kind
        for kind in vars(friendly_sam.recipes).values()
        if isinstance(kind, type) and issubclass(kind, SharpnessAware)
    } - {SharpnessAware}
    made = {getattr(recipe, "func", recipe) for recipe in RECIPES.values()}
    assert made == classes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: --device"),
        (["--device", "toaster"], "--device toaster is not a device that torch knows"),
        (["--device", "meta"], "--device meta has no numbers to check"),
        (["--device", "cuda:77"], "--device cuda:77 cannot be used here: "),
        (["--device", "cpu", "--output", "here.txt"], "here.txt is there already: --overwrite"),
        (["--device", "cpu", "--output", "."], "--output must name a file, such as selftest.txt"),
        (["--device", "cpu", "--overwriet"], "--overwriet (did you mean --overwrite?)"),
    ],
)
def test_a_mistake_is_one_line_before_any_work(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("here.txt").write_text("mine")
    assert main(["selftest", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert words in error
    assert error.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["here.txt"]
    assert Path("here.txt").read_text() == "mine"


def test_overwrite_replaces_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("friendly_sam.lab.cli.selftest.checks", lambda *_, **__: [])
    OUTPUT.write_text("old")
    assert main(["selftest", "--device", "cpu", "--quick", "--overwrite"]) == 0
    assert OUTPUT.read_text().startswith("fsam selftest\n")
