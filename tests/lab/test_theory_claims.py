"""Bounds, verdicts, files and figures of the theorems."""

import json
import math
from dataclasses import replace

import pytest

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper import theory
from friendly_sam.lab.paper.theory import lemma1, measure, theorem1, theorem2
from friendly_sam.lab.paper.theory.problem import Problem
from friendly_sam.lab.statistics import interval, log_slope

PROBLEM = Problem()
TINY = measure.Scale((0.1, 0.03), 3, 40, 60, 3, (16, 64), 3)


def quiet(_):
    pass


def test_the_corrected_bound_of_theorem_1_solves_the_concentration_inequality():
    """exp(-ε²/(8 M ||w||²) + 1/4) = δ for ε² = 8 M ||w||² ℓ; the printed ℓ gives more than δ."""
    for confidence, expected in ((theorem1.CORRECTED, 1.0), (theorem1.PRINTED, math.e**0.5)):
        assert math.exp(-confidence + 1 / 4) / theorem1.DELTA == pytest.approx(expected)


def test_alpha_balances_the_two_terms_of_the_bound():
    lr = 0.003
    alpha = theorem1.balanced_alpha(PROBLEM, lr)
    noise = 4 * math.sqrt(PROBLEM.variance * alpha * theorem1.CORRECTED)
    assert noise == pytest.approx(PROBLEM.bound * PROBLEM.beta * lr / alpha)
    whole = theorem1.error_bound(PROBLEM, lr, alpha, 10**6, theorem1.CORRECTED)
    printed_form = 2 ** (7 / 3) * (
        PROBLEM.variance * theorem1.CORRECTED * PROBLEM.bound * PROBLEM.beta * lr
    ) ** (1 / 3)
    assert whole == pytest.approx(printed_form)


def test_the_bound_of_theorem_2_is_the_papers():
    delta, beta, m = PROBLEM.gap, PROBLEM.beta, PROBLEM.variance
    g0, r0, t = theorem2.GAMMA0, theorem2.RHO0, 400
    theta, pi = 2 * beta * m * g0 + r0**2 * beta**3 * g0, r0**2 * beta**2
    printed = 2 * delta / (g0 * t**0.5) + theta / t**0.5 + pi * math.log(t) / t**0.5
    assert theorem2.convergence_bound(PROBLEM, t, math.log(t)) == pytest.approx(printed)
    harmonic = sum(1 / k for k in range(1, t + 1))
    assert math.log(t) < harmonic <= 1 + math.log(t)


def test_rates_outside_the_theorems_are_refused():
    with pytest.raises(ValueError, match="T > 4/α"):
        theorem1.measure([2.0], 1, quiet)
    with pytest.raises(ValueError, match="γ <= 1/β"):
        theorem2.measure([1], 1, quiet)


def errors_row(lr, errors, *, above=0):
    return {
        "lr": lr, "alpha": 0.1, "first": 1, "steps": 10, "errors": errors, "largest": errors,
        "printed": 1.0, "corrected": 1.0, "above_printed": above, "above_corrected": above,
    }  # fmt: skip


def verdicts(claims):
    return [claim["verdict"] for claim in claims]


def test_verdicts_of_theorem_1_follow_the_data():
    def data(slopes, above=0):
        return {"rows": [errors_row(0.1, [0.5, 0.5], above=above)], "slopes": slopes, "delta": 0.1}

    assert verdicts(theorem1.claims(data([0.33, 0.34, 0.33]))) == ["holds"] * 3
    assert verdicts(theorem1.claims(data([0.2, 0.21, 0.2])))[2] == "does not hold"
    assert verdicts(theorem1.claims(data([0.0, 0.3, 0.6])))[2] == "undecided at 3"
    assert verdicts(theorem1.claims(data([0.34, 0.33], above=3)))[0] == "does not hold"
    assert verdicts(theorem1.claims(data([0.34, 0.33], above=2)))[0] == "holds"


def test_verdicts_of_lemma_1_follow_the_data():
    def data(average, falling):
        run = {"start": [0.3, 0.31, 0.3], "falling": falling, "peak": 3}
        return {
            "gradient": [1.0, 1.01, 0.99], "average": average, "paper": run, "debiased": run,
            "lr": 0.02, "decay": 0.9,
        }  # fmt: skip

    good = lemma1.claims(data([1.0, 1.01, 0.995], [0.0, 0.01, -0.01]))
    assert verdicts(good) == ["holds", "holds", "does not hold", "holds"]
    biased = lemma1.claims(data([0.8, 0.81, 0.8], [-0.1, -0.11, -0.1]))
    assert verdicts(biased) == ["does not hold"] * 4
    noisy = lemma1.claims(data([0.8, 1.0, 1.2], [0.0, 0.01, -0.01]))
    assert verdicts(noisy)[1] == "undecided at 3"


def test_verdicts_of_theorem_2_follow_the_data():
    def data(averages, slopes):
        rows = [
            {"steps": t, "averages": averages, "printed": 2.0 / t, "corrected": 3.0 / t**0.5}
            for t in (1, 4)
        ]
        return {"rows": rows, "slopes": slopes}

    assert verdicts(theorem2.claims(data([0.1, 0.11], [-0.6, -0.61])))[0] == "holds"
    assert verdicts(theorem2.claims(data([0.9, 0.91], [-0.6, -0.61])))[1] == "does not hold"
    assert verdicts(theorem2.claims(data([0.1, 0.11], [-0.3, -0.301])))[2] == "does not hold"


def test_slopes_and_intervals():
    assert log_slope([1, 8, 64], [5, 10, 20]) == pytest.approx(1 / 3)
    one = interval([1.0])
    assert one.low == -math.inf
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.reach == pytest.approx(4.302652729 / 3**0.5)


@pytest.fixture
def tiny_scale(monkeypatch):
    monkeypatch.setitem(measure.SCALES, "mini", TINY)


def test_a_run_leaves_its_file_its_figures_and_does_nothing_twice(tmp_path, tiny_scale):
    heard = []
    theory.run(tmp_path, scale="mini", progress=heard.append)
    found = json.loads((tmp_path / "theory.json").read_text())
    assert {"claims", "tables", "data"} <= found.keys()
    for claim in found["claims"]:
        assert claim.keys() == {"text", "verdict", "detail"}
        assert claim["verdict"].split(" at ")[0] in ("holds", "does not hold", "undecided")
    for table in found["tables"]:
        assert table.keys() == {"title", "columns", "rows"}
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    # At fixed weights the lemma is exact but for chance, however few the steps.
    assert found["claims"][3]["verdict"] != "does not hold"

    again = []
    theory.run(tmp_path, scale="mini", progress=again.append)
    assert heard
    assert not again
    assert json.loads((tmp_path / "theory.json").read_text()) == found

    drawn = theory.figures(tmp_path, tmp_path / "out")
    assert [figure.name for figure in drawn] == ["theorem1", "lemma1", "theorem2"]
    for figure in drawn:
        assert figure.caption
        assert figure.svg.read_bytes().lstrip().startswith(b"<?xml")
        assert figure.png.read_bytes().startswith(b"\x89PNG")
        assert figure.pdf.read_bytes().startswith(b"%PDF")


def test_only_what_is_missing_or_damaged_is_measured_again(tmp_path, tiny_scale, monkeypatch):
    theory.run(tmp_path, scale="mini", progress=quiet)
    (tmp_path / "lemma1.json").write_text("{")
    heard = []
    theory.run(tmp_path, scale="mini", progress=heard.append)
    assert heard
    assert all(line.startswith("lemma 1") for line in heard)
    monkeypatch.setitem(measure.SCALES, "mini", replace(TINY, rate_seeds=2))
    heard.clear()
    theory.run(tmp_path, scale="mini", progress=heard.append)
    assert any(line.startswith("theorem 1") for line in heard)


def test_a_run_that_is_cut_off_leaves_no_whole_file(tmp_path, tiny_scale):
    def stop(line):
        if line.startswith("lemma 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        theory.run(tmp_path, scale="mini", progress=stop)
    assert not (tmp_path / "theory.json").exists()
    heard = []
    theory.run(tmp_path, scale="mini", progress=heard.append)
    assert not any(line.startswith("theorem 1") for line in heard)


def test_mistakes_are_told(tmp_path):
    with pytest.raises(LabError, match="scale must be one of mini, small, paper"):
        theory.run(tmp_path, scale="huge", progress=quiet)
    with pytest.raises(LabError, match="cannot read"):
        theory.figures(tmp_path / "nowhere", tmp_path)
    (tmp_path / "theory.json").write_text("[]")
    with pytest.raises(LabError, match="damaged"):
        theory.figures(tmp_path, tmp_path)
