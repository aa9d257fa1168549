"""Promise 13: two gloo processes, DDP and FSDP2."""

import pytest
import torch
import workers

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)
shards_on_cpu = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="FSDP2 of torch 2.6 does not run on CPU"
)
METHODS = ("SAM", "F-SAM", "F-ASAM", "F-FisherSAM", "F-SAM projection")


def test_ddp_with_the_global_perturbation_is_one_process_on_the_joined_batch(tmp_path):
    settings = [(method, view) for method in METHODS for view in (False, True)]
    workers.launch(workers.ddp_global, tmp_path, *settings)


def test_ddp_with_local_perturbations_keeps_equal_weights_and_averages_of_its_own(tmp_path):
    workers.launch(workers.ddp_local, tmp_path, ("F-SAM",), ("F-ASAM",))


@shards_on_cpu
def test_fsdp2_is_the_unsharded_run(tmp_path):
    workers.launch(workers.fsdp_equals_unsharded, tmp_path, *[(method,) for method in METHODS])


@shards_on_cpu
def test_fsdp2_with_a_process_that_has_no_gradient(tmp_path):
    workers.launch(workers.fsdp_with_a_process_without_gradients, tmp_path, ("SAM",), ("F-SAM",))


@shards_on_cpu
def test_fsdp2_saves_and_resumes_through_dcp(tmp_path):
    settings = [
        ("F-SAM", "momentum"),
        ("F-SAM debiased", "adamw"),
        ("F-SAM authors", "plain"),
        ("SAM", "adamw"),
    ]
    workers.launch(workers.fsdp_resumes_through_dcp, tmp_path, *settings)


@shards_on_cpu
def test_saving_a_fresh_optimizer_changes_nothing(tmp_path):
    settings = [("F-SAM",), ("F-SAM authors",)]
    workers.launch(workers.saving_a_fresh_optimizer_changes_nothing, tmp_path, *settings)


def test_local_ascent_is_refused_for_sharded_parameters(tmp_path):
    workers.launch(workers.local_ascent_is_refused_for_shards, tmp_path)
