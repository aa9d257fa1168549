"""What the processes of the distributed tests run; `spawn` imports this by name."""

import copy
import os
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from family import FAMILY, batch, momentum, network, weights
from leaving import leave
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from friendly_sam import SAM, Every

SIZE, STEPS = 16, 5


def launch(function, folder, *settings, world=2):
    """Run `function(rank, folder, *setting)` for each setting, in `world` gloo processes."""
    torch.multiprocessing.spawn(_worker, (world, str(folder), function, settings), nprocs=world)


def _worker(rank, world, folder, function, settings):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    store = f"file://{folder}/store-{function.__name__}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        for setting in settings or ((),):
            torch.manual_seed(0)
            function(rank, folder, *setting)
    finally:
        dist.destroy_process_group()
    leave()


def half(rank, seed):
    """This process's half of the batch that a single process sees whole."""
    x, y = batch(seed, SIZE)
    return x.chunk(2)[rank], y.chunk(2)[rank]


def closure(model, x, y):
    def run():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return run


def joined(method, steps=STEPS):
    """The same training in one process on the joined batch."""
    torch.manual_seed(0)
    model = network()
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    for seed in range(steps):
        optimizer.step(closure(model, *batch(seed, SIZE)))
    return model, optimizer


def ddp_global(rank, folder, method, bucket_view):
    model = DistributedDataParallel(network(), gradient_as_bucket_view=bucket_view)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    for seed in range(STEPS):
        optimizer.step(closure(model, *half(rank, seed)))
    expected, reference = joined(method)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    for a, b in zip(
        optimizer.memory.tensors("ema").values(),
        reference.memory.tensors("ema").values(),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def ddp_local(rank, folder, method):
    """Each process climbs along its own gradient; the weights stay equal."""
    model = DistributedDataParallel(network())
    optimizer = FAMILY[method](momentum(model.parameters()), model=model, sync_ascent=False)
    # By hand, for this process: the gradient of its own half climbs; the average of the second
    # gradients over processes descends.
    reference = network()
    reference.load_state_dict(model.module.state_dict())
    plain = FAMILY[method](momentum(reference.parameters()))
    for seed in range(STEPS):
        x, y = half(rank, seed)
        optimizer.step(closure(model, x, y))
        closure(reference, x, y)()
        with plain.perturbed():
            closure(reference, x, y)()
        for p in reference.parameters():
            dist.all_reduce(p.grad)
            p.grad /= 2
        plain.step()
        plain.zero_grad()
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    for p in weights(model):
        other = p.clone()
        dist.broadcast(other, 0)
        assert torch.equal(p, other), "the weights of the processes differ"
    for m in optimizer.memory.tensors("ema").values():
        other = m.clone()
        dist.broadcast(other, 0)
        assert (rank == 0) == torch.equal(m, other), "each process has an average of its own"


def fsdp_equals_unsharded(rank, folder, method):
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    for seed in range(STEPS):
        before = [p.to_local().clone() for p in model.parameters()]
        optimizer.zero_grad()
        closure(model, *half(rank, seed))()
        with optimizer.perturbed():
            closure(model, *half(rank, seed))()
        for p, w in zip(model.parameters(), before, strict=True):
            assert torch.equal(p.to_local(), w), "the shard did not come back"
        optimizer.step()
    expected, reference = joined(method)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a.full_tensor(), b.detach(), rtol=0, atol=1e-12)
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        if q in reference.memory.tensors("ema"):
            torch.testing.assert_close(
                optimizer.memory.tensors("ema")[p].full_tensor(),
                reference.memory.tensors("ema")[q],
                rtol=0,
                atol=1e-12,
            )


def fsdp_with_a_process_without_gradients(rank, folder, method):
    """It still takes part in the reduction, whatever the dtype is that the other one sums in."""
    warnings.filterwarnings("ignore", ".* found no gradient")
    model, optimizer = sharded(method)
    assert next(model.parameters()).dtype == torch.float64
    for seed in range(STEPS):
        closure(model, *half(rank, seed))()
        if rank == 1 and seed > 0:
            optimizer.zero_grad()
        before = [p.to_local().clone() for p in model.parameters()]
        with optimizer.perturbed():
            moved = [p.to_local() - w for p, w in zip(model.parameters(), before, strict=True)]
        squared = torch.stack([eps.square().sum() for eps in moved]).sum()
        dist.all_reduce(squared)
        assert abs(squared.sqrt().item() - 0.05) < 1e-12, "the norm is over all shards"


def sharded(method, base=momentum, every=1):
    torch.manual_seed(0)
    model = network()
    fully_shard(model)
    return model, FAMILY[method](base(model.parameters()), model=model, when=Every(every))


def run(model, optimizer, rank, steps):
    for seed in steps:
        optimizer.step(closure(model, *half(rank, seed)))


def fsdp_resumes_through_dcp(rank, folder, method, base):
    make = {
        "momentum": momentum,
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
        "plain": lambda p: torch.optim.SGD(p, lr=0.05),
    }[base]
    model, optimizer = sharded(method, make, every=2)
    run(model, optimizer, rank, range(3))
    optimizer.zero_grad()
    before = copy.deepcopy(optimizer.state_dict())
    kept = [p.to_local().clone() for p in model.parameters()]
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    checkpoint = f"{folder}/{method}-{base}".replace(" ", "-")
    dcp.save(state, checkpoint_id=checkpoint)
    _assert_same_state(optimizer.state_dict(), before)
    for p, w in zip(model.parameters(), kept, strict=True):
        assert torch.equal(p.to_local(), w), "saving changed the weights"
    run(model, optimizer, rank, range(3, 7))

    other, resumed = sharded(method, make, every=2)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    state = dict(zip(("model", "optimizer"), get_state_dict(other, resumed), strict=True))
    dcp.load(state, checkpoint_id=checkpoint)
    set_state_dict(
        other, resumed, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    run(other, resumed, rank, range(3, 7))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.to_local(), b.to_local()), "the resumed run differs"
    _assert_same_state(resumed.state_dict(), optimizer.state_dict())


def saving_a_fresh_optimizer_changes_nothing(rank, folder, method):
    """DCP makes a fresh optimizer create its state by a bare step with zero gradients."""
    plain_model, plain = sharded(method)
    run(plain_model, plain, rank, range(3))
    model, optimizer = sharded(method)
    before = weights(model)
    get_state_dict(model, optimizer)
    for a, b in zip(weights(model), before, strict=True):
        assert torch.equal(a.to_local(), b.to_local())
    assert all(not m.to_local().any() for m in optimizer.memory.tensors("ema").values())
    assert set(optimizer.memory.updates.values()) <= {0}
    assert optimizer.param_groups[0]["ascent_clock"] == 0
    assert not optimizer._warned  # a warning is an error here, and this is why
    optimizer.memory.updates = dict.fromkeys(optimizer.memory.tensors("ema"), 0)
    # torch's own SGD leaves weight_decay * w in its momentum here; that is the base's business.
    optimizer.base.state.clear()
    run(model, optimizer, rank, range(3))
    for a, b in zip(model.parameters(), plain_model.parameters(), strict=True):
        assert torch.equal(a.to_local(), b.to_local())


def local_ascent_is_refused_for_shards(rank, folder):
    model = network()
    fully_shard(model)
    model.no_sync = lambda: None
    with pytest.raises(ValueError, match="sharded"):
        SAM(momentum(model.parameters()), model=model, sync_ascent=False)


def _assert_same_state(left, right):
    assert left["param_groups"] == right["param_groups"]
    assert left["state"].keys() == right["state"].keys()
    for key, values in left["state"].items():
        assert values.keys() == right["state"][key].keys()
        for name, value in values.items():
            other = right["state"][key][name]
            if hasattr(value, "to_local"):
                value, other = value.to_local(), other.to_local()
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other)), (key, name)
