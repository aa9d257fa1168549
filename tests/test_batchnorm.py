"""Promise 9: running statistics move once a step."""

import pytest
import torch
from family import FAMILY, assert_same, closure_of, momentum, network, weights
from torch import nn

from friendly_sam import SAM, Euclidean, FriendlySAM, Residual, SharpnessAware, frozen_statistics


def statistics(model):
    return [buffer.clone() for buffer in model.buffers()]


def after_one_pass(model, seed):
    """What the statistics are after a single pass at w."""
    kept = {key: value.clone() for key, value in model.state_dict().items()}
    closure_of(model, seed)()
    moved = statistics(model)
    model.load_state_dict(kept)
    model.zero_grad()
    return moved


@pytest.mark.parametrize("method", FAMILY)
def test_the_pass_at_w_moves_the_statistics_and_the_other_does_not(method):
    model = network(batchnorm=True)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    for seed in range(3):
        expected = after_one_pass(model, seed)
        optimizer.step(closure_of(model, seed))
        assert_same(statistics(model), expected)
    assert model[1].num_batches_tracked == 3


@pytest.mark.parametrize("method", FAMILY)
def test_with_another_ascent_only_the_descent_pass_moves_the_statistics(method):
    model = network(batchnorm=True)
    optimizer = FAMILY[method](momentum(model.parameters()), model=model)
    seen = []

    def descent():
        seen.append(after_one_pass(model, 1))
        return closure_of(model, 1)()

    optimizer.step(descent, ascent=closure_of(model, 7))
    assert_same(statistics(model), seen[0])
    assert model[1].num_batches_tracked == 1


def test_the_reference_of_a_residual_does_not_move_the_statistics():
    model = network(batchnorm=True)
    optimizer = SharpnessAware(
        momentum(model.parameters()),
        0.1,
        direction=Residual(closure_of(model, 9)),
        geometry=Euclidean(),
        model=model,
    )
    expected = after_one_pass(model, 0)
    optimizer.step(closure_of(model, 0))
    assert_same(statistics(model), expected)


def test_perturbed_freezes_unless_told_not_to():
    model = network(batchnorm=True)
    optimizer = SAM(momentum(model.parameters()), model=model)
    for freeze, passes in ((True, 1), (False, 3)):
        closure_of(model, 0)()
        with optimizer.perturbed(freeze_statistics=freeze):
            closure_of(model, 0)()
        optimizer.step()
        assert model[1].num_batches_tracked == passes


def test_without_a_model_both_passes_move_them():
    """Which is why `model=` exists."""
    model = network(batchnorm=True)
    SAM(momentum(model.parameters())).step(closure_of(model, 0))
    assert model[1].num_batches_tracked == 2


@pytest.mark.parametrize("failing_pass", [1, 2])
def test_flags_come_back_after_an_exception(failing_pass):
    model = network(batchnorm=True)
    optimizer = SAM(momentum(model.parameters()), model=model)
    calls = []

    def closure():
        calls.append(model[1].track_running_stats)
        if len(calls) == failing_pass:
            raise RuntimeError("broken")
        return closure_of(model, 0)()

    with pytest.raises(RuntimeError, match="broken"):
        optimizer.step(closure)
    assert model[1].track_running_stats
    assert calls == [True, False][:failing_pass]


def test_frozen_layers_still_normalise_by_the_batch():
    layer, x = nn.BatchNorm1d(6), torch.randn(32, 6) * 5 + 3
    expected = nn.BatchNorm1d(6)(x)
    with frozen_statistics(layer):
        assert torch.equal(layer(x), expected)


def test_layers_in_evaluation_mode_keep_using_their_statistics():
    layer, x = nn.BatchNorm1d(6).eval(), torch.randn(32, 6) * 5 + 3
    expected = layer(x)
    with frozen_statistics(layer):
        assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("momentum_", [0.1, None])
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_every_kind_of_running_statistic_is_frozen(kind, momentum_):
    if kind is nn.InstanceNorm2d and momentum_ is None:
        momentum_ = 0.5  # it has no cumulative average
    layer = kind(3, momentum=momentum_, track_running_stats=True)
    layer(torch.randn(4, 3, 5, 5))
    kept = statistics(layer)
    with frozen_statistics(layer):
        layer(torch.randn(4, 3, 5, 5))
    assert_same(statistics(layer), kept)
    assert layer.momentum == momentum_
    layer(torch.randn(4, 3, 5, 5))
    assert not torch.equal(statistics(layer)[0], kept[0])


def test_a_compiled_model_trains_as_the_plain_one():
    def run(compiled):
        torch.manual_seed(0)
        model = network(batchnorm=True)
        runnable = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = FriendlySAM(momentum(model.parameters()), 0.1, model=runnable)
        for seed in range(4):
            optimizer.step(closure_of(runnable, seed))
        return weights(model) + statistics(model)

    for a, b in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
