"""Promise 10: `replay_rng` gives both passes the same dropout masks."""

import pytest
import torch
from family import momentum, network
from torch import nn

from friendly_sam import SAM, FriendlySAM


def masks(optimizer, model):
    seen = []

    def closure():
        mask = nn.functional.dropout(torch.ones(64), 0.5)
        seen.append(mask)
        (model(torch.ones(2, 6, dtype=torch.float64)).sum() * mask.sum()).backward()

    optimizer.step(closure)
    return seen


@pytest.mark.parametrize("recipe", [SAM, FriendlySAM])
def test_replay_gives_both_passes_the_same_masks(recipe):
    model = network()
    first, second = masks(recipe(momentum(model.parameters()), replay_rng=True), model)
    assert torch.equal(first, second)


def test_steps_still_differ_from_each_other():
    model = network()
    optimizer = SAM(momentum(model.parameters()), replay_rng=True)
    assert not torch.equal(masks(optimizer, model)[0], masks(optimizer, model)[0])


def test_without_replay_the_masks_differ():
    model = network()
    first, second = masks(SAM(momentum(model.parameters())), model)
    assert not torch.equal(first, second)


def test_perturbed_cannot_replay_and_says_so():
    model = network()
    optimizer = SAM(momentum(model.parameters()), replay_rng=True)
    with pytest.raises(RuntimeError, match=r"step\(closure\) only"), optimizer.perturbed():
        pass
