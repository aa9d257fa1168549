"""A loss as a function of the weights: right, left alone, and refused when it changes."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from known_hessians import batches, dense_hessian, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from friendly_sam.sharpness import NotDeterministicError, Objective
from friendly_sam.sharpness.vectors import moved


def snapshot(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_the_result_does_not_depend_on_how_the_data_is_cut(sizes):
    model, data = network(), batches(tuple(sizes))
    whole = [tuple(torch.cat(parts) for parts in zip(*data))]
    cut, joined = (Objective(model, F.cross_entropy, d) for d in (data, whole))
    assert cut.loss() == pytest.approx(joined.loss(), rel=1e-12)
    torch.testing.assert_close(cut.gradient(), joined.gradient())
    vector = torch.randn(cut.dimension, dtype=torch.float64)
    torch.testing.assert_close(cut.hessian_product(vector), joined.hessian_product(vector))


def test_hessian_products_are_those_of_the_dense_hessian(objective):
    dense = dense_hessian(objective.model, objective.data)
    rows = [objective.hessian_product(row) for row in torch.eye(objective.dimension).double()]
    torch.testing.assert_close(torch.stack(rows), dense, rtol=1e-10, atol=1e-12)


def test_only_chosen_parameters_count():
    model = network()
    objective = Objective(model, F.cross_entropy, batches(), parameters=model[2].parameters())
    assert objective.dimension == 40
    dense = dense_hessian(model, batches())[-40:, -40:]
    vector = torch.randn(40, dtype=torch.float64)
    torch.testing.assert_close(objective.hessian_product(vector), dense @ vector)


def test_parameters_that_the_loss_does_not_use_have_no_curvature():
    model = nn.ModuleDict({"used": nn.Linear(6, 4), "idle": nn.Linear(2, 2)}).double()
    objective = Objective(
        model, None, batches(), batch_loss=lambda m, b: F.cross_entropy(m["used"](b[0]), b[1])
    )
    product = objective.hessian_product(torch.ones(objective.dimension, dtype=torch.float64))
    assert product[:28].abs().sum() > 0
    assert product[28:].abs().sum() == 0


def test_a_linear_loss_has_no_curvature():
    model = nn.Linear(6, 1).double()
    objective = Objective(model, lambda out, _: out.mean(), batches())
    assert objective.hessian_product(torch.ones(7, dtype=torch.float64)).abs().sum() == 0


def test_batches_of_any_form_work_with_batch_loss():
    model = network()
    data = [{"x": x, "y": y} for x, y in batches()]
    objective = Objective(
        model, None, data, batch_loss=lambda m, b: F.cross_entropy(m(b["x"]), b["y"])
    )
    assert objective.loss() == Objective(model, F.cross_entropy, batches()).loss()


def test_everything_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    model.train()
    model[3].eval()
    data = batches(dtype=torch.float32)
    F.cross_entropy(model(data[0][0]), data[0][1]).backward()
    before, gradients = snapshot(model), [p.grad.clone() for p in model.parameters()]
    pointers = [p.data_ptr() for p in model.parameters()]
    for mode in ("evaluation", "batch"):
        objective = Objective(model, F.cross_entropy, data, mode=mode)
        vector = torch.randn(objective.dimension)
        objective.loss(vector), objective.gradient(vector), objective.hessian_product(vector)
    assert same(before, snapshot(model))
    assert [module.training for module in model] == [True, True, True, False]
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients))
    assert [p.data_ptr() for p in model.parameters()] == pointers


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_come_back_bit_for_bit_after_an_error(error, dtype):
    model = network(dtype)
    model.train()
    objective = Objective(model, F.cross_entropy, batches(dtype=dtype), check=False)
    before = snapshot(model)

    def fail(*_):
        raise error

    handle = model.register_forward_hook(fail)
    with pytest.raises(error):
        objective.loss(torch.full((objective.dimension,), 0.3, dtype=objective.dtype))
    handle.remove()
    assert same(before, snapshot(model))
    assert model.training


def test_moved_moves():
    weight = torch.tensor([1.0, 2.0])
    with moved([weight], torch.tensor([0.5, -0.5])):
        assert weight.tolist() == [1.5, 1.5]
    assert weight.tolist() == [1.0, 2.0]


def test_batchnorm_is_said_in_the_output():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    data = batches(dtype=torch.float32)
    words = {
        mode: Objective(model, F.cross_entropy, data, mode=mode).normalisation
        for mode in ("evaluation", "batch")
    }
    assert "running statistics" in words["evaluation"]
    assert "each fixed batch" in words["batch"]
    plain = Objective(network(), F.cross_entropy, batches())
    assert plain.normalisation == "no BatchNorm"


def test_batchnorm_uses_the_statistics_that_the_mode_says():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).double()
    model[1].running_mean.fill_(3.0)
    data = batches()
    x, y = (torch.cat(parts) for parts in zip(*data))
    with torch.no_grad():
        expected = F.cross_entropy(model.eval()(x), y).item()
    running = Objective(model, F.cross_entropy, data, mode="evaluation")
    assert running.loss() == pytest.approx(expected, rel=1e-12)
    assert abs(Objective(model, F.cross_entropy, data, mode="batch").loss() - expected) > 1e-2


def test_dropout_in_training_mode_is_refused():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4)).double().train()
    with pytest.raises(NotDeterministicError, match="evaluation mode"):
        Objective(model, F.cross_entropy, batches(), mode="as is")
    Objective(model, F.cross_entropy, batches())  # evaluation mode is the default


def test_data_that_changes_is_refused():
    class Augmented(list):
        def __iter__(self):
            return ((x + 0.1 * torch.randn_like(x), y) for x, y in super().__iter__())

    with pytest.raises(NotDeterministicError, match="fixed data"):
        Objective(network(), F.cross_entropy, Augmented(batches()))


def test_a_gradient_that_changes_is_refused_though_the_loss_does_not():
    def noisy(model, batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        random = loss * torch.rand(())
        return loss.detach() + random - random.detach()

    with pytest.raises(NotDeterministicError, match="gradients apart"):
        Objective(network(), None, batches(), batch_loss=noisy)


def test_a_loader_that_only_shuffles_is_accepted():
    x, y = (torch.cat(parts) for parts in zip(*batches()))
    loader = DataLoader(TensorDataset(x.float(), y), batch_size=4, shuffle=True)
    objective = Objective(network(torch.float32), F.cross_entropy, loader)
    assert objective.samples == len(x)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    with pytest.raises(NotDeterministicError):
        Objective(model, F.cross_entropy, loader, mode="batch")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"data": (b for b in [])}, TypeError, "generator"),
        ({"data": []}, ValueError, "empty"),
        ({"mode": "train"}, ValueError, "mode must be one of"),
        ({"loss": None}, ValueError, "either loss or batch_loss"),
        ({"parameters": []}, ValueError, "at least one"),
        ({"loss": lambda o, t: F.cross_entropy(o, t, reduction="none")}, ValueError, "one number"),
        ({"loss": lambda o, t: o.mean() * float("nan")}, ValueError, "not finite"),
    ],
)
def test_mistakes_are_told(change, error, words):
    settings = {"loss": F.cross_entropy, "data": batches(), **change}
    with pytest.raises(error, match=words):
        Objective(network(), settings.pop("loss"), settings.pop("data"), **settings)


def test_a_vector_of_the_wrong_length_is_told(objective):
    with pytest.raises(ValueError, match="one number for each weight"):
        objective.hessian_product(torch.ones(3, dtype=torch.float64))
