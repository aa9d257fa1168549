"""Lightning's automatic optimization is the hand-written loop, bit for bit, traps included."""

import socket

import pytest
import torch

pytest.importorskip("lightning.pytorch")

from family import assert_same, batch, weights
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning_problem import (
    BATCHES,
    IGNORED,
    SIZE,
    Mixed,
    Plain,
    Record,
    by_hand,
    ddp_rank,
    loader,
    trainer,
)
from torch.nn import functional as F

from friendly_sam import Every
from friendly_sam.integrations.lightning import SharpnessAwareMixin

pytestmark = [pytest.mark.filterwarnings(each) for each in IGNORED]
KINDS = {"plain wrapper": Plain, "mix-in": Mixed}


def everything(model, optimizer):
    """Weights, buffers and moving averages."""
    return [*model.state_dict().values(), *optimizer.memory.tensors("ema").values()]


@pytest.mark.parametrize("method", ["SAM", "F-SAM", "F-ASAM"])
@pytest.mark.parametrize("kind", KINDS)
def test_automatic_optimization_is_the_hand_written_loop(tmp_path, kind, method):
    model, reference = KINDS[kind](method), Plain(method)
    fit = trainer(tmp_path)
    fit.fit(model, loader())
    optimizer, _ = by_hand(reference, 2 * BATCHES)
    assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))
    assert fit.global_step == 2 * BATCHES


def test_every_skips_the_second_pass(tmp_path):
    model, reference = Mixed(when=Every(2)), Plain(when=Every(2))
    fit = trainer(tmp_path)
    fit.fit(model, loader())
    optimizer, _ = by_hand(reference, 2 * BATCHES)
    assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))
    assert len(model.seen) == 3 * BATCHES


@pytest.mark.parametrize("kind", KINDS)
def test_batchnorm_statistics_move_once_a_step(tmp_path, kind):
    model = KINDS[kind]()
    trainer(tmp_path).fit(model, loader())
    assert model.net[1].num_batches_tracked == 2 * BATCHES


def test_accumulating_four_micro_batches_is_one_batch_of_four_times_the_size(tmp_path):
    pieces, whole = Mixed(batchnorm=False), Mixed(batchnorm=False)
    trainer(tmp_path, accumulate_grad_batches=4).fit(pieces, loader(SIZE // 4))
    trainer(tmp_path).fit(whole, loader(SIZE))
    for a, b in zip(weights(pieces), weights(whole), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_an_epoch_that_ends_amid_an_accumulation(tmp_path):
    """Six batches by fours: Lightning steps with the last two, still divided by four."""
    model, reference = Mixed(batchnorm=False), Plain(batchnorm=False)
    fit = trainer(tmp_path, epochs=1, accumulate_grad_batches=4)
    fit.fit(model, loader())
    (optimizer,), _ = reference.configure_optimizers()
    for seeds in ((0, 1, 2, 3), (4, 5)):

        def closure(seeds=seeds):
            for x, y in (batch(seed, SIZE) for seed in seeds):
                (F.cross_entropy(reference.net(x), y) / 4).backward()

        optimizer.step(closure)
    assert_same(weights(model), weights(reference))


def test_clipping_touches_the_descent_gradient_only(tmp_path):
    model, reference, record = Mixed(), Plain(), Record()
    fit = trainer(tmp_path, gradient_clip_val=0.05, callbacks=[record])
    fit.fit(model, loader())
    optimizer, _ = by_hand(reference, 2 * BATCHES, clip=0.05)
    assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))
    assert len(record.norms) == 2 * BATCHES, "hooks see the descent gradient, once"
    assert min(record.norms) > 0.05, "clipping has something to do"


def test_without_the_mixin_clipping_and_accumulation_are_not_what_they_should_be(tmp_path):
    """Why there is a mix-in; when Lightning changes this, the guide must too."""
    clipped, reference = Plain(), Plain()
    fit = trainer(tmp_path, gradient_clip_val=0.05)
    with pytest.warns(UserWarning, match="gradient_clip_val: the gradient at w is clipped too"):
        fit.fit(clipped, loader())
    optimizer, _ = by_hand(reference, 2 * BATCHES, clip=0.05)
    norms = [
        torch.nn.utils.get_total_norm(each.memory.tensors("ema").values())
        for each in (fit.optimizers[0], optimizer)
    ]
    assert norms[0] <= 0.05 < norms[1], "the average holds clipped gradients"
    pieces, whole = Plain(batchnorm=False), Plain(batchnorm=False)
    with pytest.warns(UserWarning, match="accumulate_grad_batches=4: the second pass") as told:
        trainer(tmp_path, accumulate_grad_batches=4).fit(pieces, loader(SIZE // 4))
    assert len([each for each in told if "SharpnessAwareMixin" in str(each.message)]) == 1
    trainer(tmp_path).fit(whole, loader(SIZE))
    assert not torch.allclose(weights(pieces)[0], weights(whole)[0], atol=1e-3)


def test_clipping_of_ones_own_is_warned_of_too(tmp_path):
    class Own(Plain):
        def configure_gradient_clipping(self, optimizer, **_):
            self.clip_gradients(optimizer, 0.05, "norm")

    with pytest.warns(UserWarning, match="configure_gradient_clipping: the gradient at w"):
        trainer(tmp_path, epochs=1).fit(Own(), loader())


def test_a_mixin_that_stands_after_the_module_is_refused():
    with pytest.raises(TypeError, match=r"class Late\(SharpnessAwareMixin, LightningModule\)"):
        type("Late", (Plain, SharpnessAwareMixin), {})
    other = type("Other", (), {"optimizer_step": lambda self, *a: super().optimizer_step(*a)})
    type("Early", (other, SharpnessAwareMixin, Plain), {})  # before the module is enough


def test_bf16_is_the_hand_written_loop(tmp_path):
    for kind in (Plain, Mixed):
        model, reference = kind(dtype=torch.float32), Plain(dtype=torch.float32)
        fit = trainer(tmp_path, precision="bf16-mixed")
        fit.fit(model, loader(dtype=torch.float32))
        optimizer, _ = by_hand(reference, 2 * BATCHES, autocast=torch.bfloat16, dtype=torch.float32)
        assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")  # overflow
@pytest.mark.parametrize("clip", [None, 0.05])
def test_fp16_with_a_scaler_is_the_hand_written_loop(tmp_path, clip):
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**20) for _ in range(2)]  # overflows
    model, reference = Mixed(dtype=torch.float32), Plain(dtype=torch.float32)
    plugin = MixedPrecision("16-mixed", "cpu", scalers[0])
    fit = trainer(tmp_path, plugins=[plugin], gradient_clip_val=clip)
    fit.fit(model, loader(dtype=torch.float32))
    optimizer, _ = by_hand(
        reference,
        2 * BATCHES,
        clip=clip,
        scaler=scalers[1],
        autocast=torch.float16,
        dtype=torch.float32,
    )
    assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))
    assert scalers[0].get_scale() == scalers[1].get_scale() < 2.0**20


def test_fp16_without_the_mixin_is_not_silent(tmp_path):
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1.0))
    with pytest.warns(UserWarning, match="plain step of the base optimizer"):
        trainer(tmp_path, plugins=[plugin]).fit(
            Plain(dtype=torch.float32), loader(dtype=torch.float32)
        )


def test_the_logged_loss_is_the_one_at_w_and_metrics_count_once(tmp_path):
    from torchmetrics import MeanMetric

    class Measured(Mixed):
        def __init__(self):
            super().__init__()
            self.mean = MeanMetric()
            self.called = []

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.called.append(self.mean(loss.detach()))
            self.log("metric", self.mean, on_step=False, on_epoch=True)
            return loss

    model, record = Measured(), Record()
    fit = trainer(tmp_path, epochs=1, callbacks=[record])
    fit.fit(model, loader())
    _, losses = by_hand(Plain(), BATCHES)
    assert record.losses == losses
    assert fit.callback_metrics["loss_step"] == pytest.approx(losses[-1])
    assert fit.callback_metrics["loss_epoch"] == pytest.approx(sum(losses) / len(losses))
    assert fit.callback_metrics["metric"] == pytest.approx(sum(losses) / len(losses))
    assert len(model.called) == 2 * BATCHES
    assert None not in model.called
    assert not model.second_pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, kind):
    whole, begun, resumed = (KINDS[kind]() for _ in range(3))
    fit = trainer(tmp_path, epochs=4)
    fit.fit(whole, loader())
    stopped = trainer(tmp_path, epochs=2)
    stopped.fit(begun, loader())
    stopped.save_checkpoint(tmp_path / "two.ckpt")
    torch.nn.init.zeros_(resumed.net[0].weight)
    again = trainer(tmp_path, epochs=4)
    again.fit(resumed, loader(), ckpt_path=tmp_path / "two.ckpt", weights_only=True)
    assert_same(everything(resumed, again.optimizers[0]), everything(whole, fit.optimizers[0]))
    assert again.global_step == 4 * BATCHES


def test_two_processes_are_one_on_the_joined_batch(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TEST_PORT", str(free.getsockname()[1]))
    one = Plain(batchnorm=False)
    trainer(tmp_path).fit(one, loader())
    torch.save(weights(one), tmp_path / "one.pt")
    torch.multiprocessing.spawn(ddp_rank, (str(tmp_path), str(tmp_path / "one.pt")), nprocs=2)


def test_a_failed_second_pass_leaves_the_weights(tmp_path):
    class Failing(Mixed):
        def training_step(self, batch, batch_idx):
            if self.second_pass and self.global_step == 3:
                raise OSError("out of luck")
            return super().training_step(batch, batch_idx)

    model, reference = Failing(), Plain()
    with pytest.raises(OSError, match="out of luck"):
        trainer(tmp_path).fit(model, loader())
    by_hand(reference, 3)
    assert_same(weights(model), weights(reference))
    assert not model.second_pass


def test_manual_optimization_steps_with_a_closure(tmp_path):
    class Manual(Plain):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            def closure():
                loss = F.cross_entropy(self.net(batch[0]), batch[1])
                self.manual_backward(loss)
                return loss

            self.log("loss", self.optimizers().step(closure))
            self.lr_schedulers().step()

    model, reference = Manual(), Plain()
    fit = trainer(tmp_path)
    fit.fit(model, loader())
    optimizer, losses = by_hand(reference, 2 * BATCHES)
    assert_same(everything(model, fit.optimizers[0]), everything(reference, optimizer))
    assert fit.callback_metrics["loss"] == pytest.approx(losses[-1])
    assert fit.global_step == 2 * BATCHES


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor")
def test_what_cannot_work_is_refused_at_the_start(tmp_path):
    with pytest.raises(ValueError, match="replay_rng=True does not work"):
        trainer(tmp_path).fit(Mixed(replay_rng=True), loader())

    class Iterating(Mixed):
        def training_step(self, dataloader_iter):
            raise AssertionError("it must not come to this")

    with pytest.raises(ValueError, match=r"dataloader_iter\) does not work"):
        trainer(tmp_path).fit(Iterating(), loader())

    from lightning.pytorch.strategies import SingleDeviceStrategy

    class FSDPStrategy(SingleDeviceStrategy):  # the real one needs a GPU
        pass

    with pytest.raises(ValueError, match="does not work with FSDPStrategy: its flat shards"):
        trainer(tmp_path, strategy=FSDPStrategy(device="cpu")).fit(Mixed(), loader())
