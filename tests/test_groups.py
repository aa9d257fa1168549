"""Promise 8: a radius for each group, and what belongs to groups."""

import pytest
import torch
from family import FAMILY, assert_same, closure_of, momentum, network, train, weights

from friendly_sam import SAM, FriendlySAM, RadiusSchedule

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


@pytest.mark.parametrize("method", FAMILY)
def test_a_group_with_radius_zero_is_neither_moved_nor_counted_nor_averaged(method):
    model = network()
    first, last = list(model[0].parameters()), list(model[2].parameters())
    alone = FAMILY[method](momentum(last), 0.1)
    closure_of(model, 0)()
    gradients = [p.grad.clone() for p in model.parameters()]
    with alone.perturbed():
        expected = weights(model)
    both = FAMILY[method](
        torch.optim.SGD([{"params": first, "rho": 0.0}, {"params": last}], lr=0.05), 0.1
    )
    for p, g in zip(model.parameters(), gradients, strict=True):
        p.grad = g.clone()
    with both.perturbed():
        assert_same(weights(model), expected)
    assert not set(first) & set(both.memory.tensors("ema"))


def test_groups_climb_each_by_its_own_radius_along_one_direction():
    model = network()
    groups = [
        {"params": list(model[0].parameters()), "rho": 0.3},
        {"params": list(model[2].parameters())},
    ]
    optimizer = SAM(torch.optim.SGD(groups, lr=0.05), 0.1)
    assert [group["rho"] for group in optimizer.param_groups] == [0.3, 0.1]
    closure_of(model, 0)()
    before, g = weights(model), [p.grad.clone() for p in model.parameters()]
    norm = torch.cat([x.flatten() for x in g]).norm()
    with optimizer.perturbed():
        for p, w, g, rho in zip(model.parameters(), before, g, (0.3, 0.3, 0.1, 0.1), strict=True):
            torch.testing.assert_close(p.detach(), w + rho * g / norm, rtol=0, atol=1e-14)


def test_any_code_can_drive_the_radius():
    model = network()
    optimizer = SAM(momentum(model.parameters()), 0.1)
    optimizer.param_groups[0]["rho"] = 0.0
    assert not optimizer.ascent_due
    calls = []
    closure = closure_of(model, 0)
    optimizer.step(lambda: calls.append(closure()))
    assert len(calls) == 1


def test_a_group_that_is_added_later_climbs_too():
    model = network()
    optimizer = FriendlySAM(momentum(model[0].parameters()), 0.1, model=model)
    train(model, optimizer, 2)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
    assert optimizer.param_groups[1]["rho"] == 0.1
    assert optimizer.base.param_groups is optimizer.param_groups
    before = weights(model[2])
    closure_of(model, 2)()
    with optimizer.perturbed():
        assert not torch.equal(model[2].weight, before[0])
        closure_of(model, 2)()
    optimizer.step()
    assert len(optimizer.memory.tensors("ema")) == 4


def test_a_group_that_is_added_to_the_base_is_seen():
    model = network()
    optimizer = SAM(momentum(model[0].parameters()), 0.1)
    optimizer.base.add_param_group({"params": list(model[2].parameters())})
    before = weights(model[2])
    closure_of(model, 0)()
    with optimizer.perturbed():
        assert not torch.equal(model[2].weight, before[0])


def test_groups_without_parameters_are_no_error():
    optimizer = FriendlySAM(torch.optim.SGD([{"params": []}], lr=0.1))
    optimizer.step(lambda: None)
    with optimizer.perturbed():
        pass
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())


def test_a_base_with_a_rho_of_its_own_keeps_it():
    model = network()
    optimizer = SAM(torch.optim.Adadelta(model.parameters(), rho=0.9), 0.1)
    assert optimizer.radius_key == "ascent_rho"
    assert optimizer.param_groups[0]["rho"] == 0.9
    closure_of(model, 0)()
    before = weights(model)
    with optimizer.perturbed():
        eps = torch.cat([(a - b).flatten() for a, b in zip(weights(model), before, strict=True)])
        assert eps.norm().item() == pytest.approx(0.1)
        closure_of(model, 0)()
    optimizer.step()
    RadiusSchedule.linear(optimizer, factor=0.0, steps=1).step()
    assert optimizer.param_groups[0]["ascent_rho"] == 0
    assert optimizer.param_groups[0]["rho"] == 0.9
