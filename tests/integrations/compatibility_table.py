"""Write docs/guides/compatibility.md from what the tests say.

    python tests/integrations/compatibility_table.py

A cell names tests; what is printed is their outcome in this run, not what somebody believed.
"""

import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "compatibility.md"
LOOP, AMP, NORM, STATE, DIST = (
    f"tests/test_{name}.py"
    for name in ("training_loop", "mixed_precision", "batchnorm", "state", "distributed")
)
LIGHTNING, TRAINER, ACCELERATE, EXAMPLES = (
    f"tests/integrations/test_{name}.py"
    for name in ("lightning", "transformers_trainer", "accelerate_loop", "examples")
)
TOOLS = ("plain torch", "Lightning, as it is", "Lightning, mix-in", "HF Trainer", "Accelerate")
HAND = "test_automatic_optimization_is_the_hand_written_loop"
FOUR = "test_accumulating_four_micro_batches_is_one_batch_of_four_times_the_size"
CLIP = "test_clipping_touches_the_descent_gradient_only"
ONCE = "test_batchnorm_statistics_move_once_a_step"
RESUMED = "test_a_resumed_run_is_the_uninterrupted_one"
JOINED = "test_two_processes_are_one_on_the_joined_batch"
SCALER = "test_a_gradient_scaler_changes_nothing"
TRAPS = "test_without_the_mixin_clipping_and_accumulation_are_not_what_they_should_be"
EXAMPLE = f"{EXAMPLES}::test_the_example_runs_and_trains"
WRONG = "no: use the mix-in"

# feature -> a cell for each tool: a test, or a test and what it means when it passes, or None.
TABLE = {
    "equals the hand-written loop, bit for bit": (
        ("tests/test_perturbation.py", "it is that loop"),
        f"{LIGHTNING}::{HAND}[plain wrapper",
        f"{LIGHTNING}::{HAND}[mix-in",
        f"{TRAINER}::test_the_trainer_is_the_hand_written_loop",
        f"{ACCELERATE}::test_the_step_is_the_hand_written_one",
    ),
    "accumulated micro-batches are one large batch": (
        f"{LOOP}::test_a_closure_over_micro_batches_is_one_large_batch",
        (f"{LIGHTNING}::{TRAPS}", WRONG),
        f"{LIGHTNING}::{FOUR}",
        f"{TRAINER}::{FOUR}",
        f"{ACCELERATE}::{FOUR}",
    ),
    "clipping touches the descent gradient only": (
        f"{LOOP}::{CLIP}",
        (f"{LIGHTNING}::{TRAPS}", WRONG),
        f"{LIGHTNING}::{CLIP}",
        f"{TRAINER}::{CLIP}",
        f"{ACCELERATE}::test_the_step_is_the_hand_written_one[F-ASAM",
    ),
    "BatchNorm statistics move once a step": (
        f"{NORM}::test_the_pass_at_w_moves_the_statistics_and_the_other_does_not",
        f"{LIGHTNING}::{ONCE}[plain wrapper",
        f"{LIGHTNING}::{ONCE}[mix-in",
        f"{TRAINER}::test_an_image_classifier_moves_its_statistics_once_a_step",
        f"{ACCELERATE}::{ONCE}",
    ),
    "bf16": (
        f"{AMP}::test_autocast_in_bfloat16_trains",
        f"{LIGHTNING}::test_bf16_is_the_hand_written_loop",
        f"{LIGHTNING}::test_bf16_is_the_hand_written_loop",
        f"{TRAINER}::test_bf16_is_the_hand_written_loop",
        f"{ACCELERATE}::test_bf16_is_the_hand_written_step",
    ),
    "fp16 with a scaler": (
        f"{AMP}::test_an_overflow_loses_nothing",
        (f"{LIGHTNING}::test_fp16_without_the_mixin_is_not_silent", "no, and it warns"),
        f"{LIGHTNING}::test_fp16_with_a_scaler_is_the_hand_written_loop",
        (f"{TRAINER}::{SCALER}", "the scaler; fp16 itself needs a GPU"),
        (f"{ACCELERATE}::{SCALER}", "the scaler; fp16 itself needs a GPU"),
    ),
    "the loss reported is the one at w": (
        f"{LOOP}::test_the_loss_that_step_returns_is_the_one_at_w",
        None,
        f"{LIGHTNING}::test_the_logged_loss_is_the_one_at_w_and_metrics_count_once",
        f"{TRAINER}::test_the_trainer_is_the_hand_written_loop",
        f"{ACCELERATE}::test_the_step_is_the_hand_written_one",
    ),
    "a resumed run is the uninterrupted one, bit for bit": (
        f"{STATE}::test_every_method_resumes_bit_for_bit",
        f"{LIGHTNING}::{RESUMED}[plain wrapper",
        f"{LIGHTNING}::{RESUMED}[mix-in",
        f"{TRAINER}::{RESUMED}",
        f"{ACCELERATE}::{RESUMED}",
    ),
    "2 DDP processes are one on the joined batch": (
        f"{DIST}::test_ddp_with_the_global_perturbation_is_one_process_on_the_joined_batch",
        f"{LIGHTNING}::{JOINED}",
        f"{LIGHTNING}::{JOINED}",
        f"{TRAINER}::{JOINED}",
        None,
    ),
    "FSDP2 is the unsharded run": (
        f"{DIST}::test_fsdp2_is_the_unsharded_run",
        None,
        None,
        None,
        None,
    ),
    "an error in the second pass leaves the weights": (
        "tests/test_restore.py",
        None,
        f"{LIGHTNING}::test_a_failed_second_pass_leaves_the_weights",
        f"{TRAINER}::test_a_failed_second_pass_leaves_the_weights",
        None,
    ),
    "what cannot work is refused": (
        "tests/test_errors.py",
        None,
        f"{LIGHTNING}::test_what_cannot_work_is_refused_at_the_start",
        f"{TRAINER}::test_deepspeed_and_fsdp1_are_refused",
        None,
    ),
    "the example runs": (
        f"{EXAMPLE}[plain_torch",
        None,
        f"{EXAMPLE}[lightning_module",
        f"{EXAMPLE}[huggingface_trainer",
        f"{EXAMPLE}[accelerate_loop",
    ),
}


def wanted() -> list[str]:
    """All tests that the table names."""
    cells = [cell for row in TABLE.values() for cell in row if cell is not None]
    return sorted({cell if isinstance(cell, str) else cell[0] for cell in cells})


def outcomes() -> dict[str, str]:
    """Run the tests and say of each whether it passed, failed or was skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tests = sorted({test.split("[")[0] for test in wanted()})
        subprocess.run(
            [sys.executable, "-m", "pytest", f"--junitxml={report}", *tests], cwd=ROOT, check=False
        )
        found = {}
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            result = "passed"
            if kinds & {"failure", "error"}:
                result = "failed"
            elif "skipped" in kinds:
                result = "skipped"
            module = case.get("classname", "").replace(".", "/") + ".py"
            found[f"{module}::{case.get('name')}"] = result
        return found


def cell(entry: str | tuple[str, str] | None, found: dict[str, str]) -> str:
    """What the tests of one cell say together."""
    if entry is None:
        return "not tested"
    test, meaning = (entry, "yes") if isinstance(entry, str) else entry
    results = [result for name, result in found.items() if name.startswith(test)]
    if "failed" in results:
        return "**fails**"
    if not results or "passed" not in results:
        return "not run"
    return meaning


def page(found: dict[str, str]) -> str:
    """The page, from the outcomes."""
    versions = []
    for package in ("torch", "lightning", "transformers", "accelerate"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    counts = {kind: list(found.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    lines = [
        "# What works with what",
        "",
        "<!-- Generated by tests/integrations/compatibility_table.py; do not edit. -->",
        "",
        "Made by `python tests/integrations/compatibility_table.py`, which runs the tests behind "
        "each cell and prints their outcome. On a CPU, two processes at most, with "
        f"{', '.join(versions)}: {counts['passed']} tests passed, {counts['failed']} failed, "
        f'{counts["skipped"]} skipped. "Not tested" is what it says; no cell was measured on a '
        "GPU.",
        "",
        f"| | {' | '.join(TOOLS)} |",
        f"|---|{'---|' * len(TOOLS)}",
    ]
    for feature, row in TABLE.items():
        lines.append(f"| {feature} | {' | '.join(cell(each, found) for each in row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(outcomes()))
    print(f"wrote {PAGE.relative_to(ROOT)}")
