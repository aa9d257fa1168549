"""Slices of the loss, where they are known in closed form, and the weights afterwards."""

import pytest
import torch
import torch.nn.functional as F
from known_hessians import batches, network, quadratic_objective, with_spectrum
from torch import nn

from friendly_sam.sharpness import (
    Objective,
    between,
    filter_normalised,
    line,
    plane,
    random_directions,
    top_eigenpairs,
)


def test_a_line_along_an_eigenvector_of_a_quadratic_is_its_parabola():
    objective = quadratic_objective(with_spectrum([5.0, 2.0, 1.0]), torch.zeros(3).double())
    vector = top_eigenpairs(objective, 1, tolerance=1e-10).vectors[0]
    at = [-1.0, -0.5, 0.0, 0.5, 1.0]
    found = line(objective, vector, at)
    assert found.losses == pytest.approx([2.5 * x * x for x in at], abs=1e-12)


def test_a_plane_has_x_in_its_columns_and_y_in_its_rows():
    objective = quadratic_objective(
        torch.diag(torch.tensor([2.0, 8.0])).double(), torch.zeros(2).double()
    )
    first, second = torch.eye(2).double()
    heard = []
    found = plane(
        objective, first, second, [0.0, 1.0, 2.0], [0.0, 1.0],
        progress=lambda done, most: heard.append((done, most)),
    )  # fmt: skip
    assert found.losses == ((0.0, 1.0, 4.0), (4.0, 5.0, 8.0))
    assert heard[-1] == (6, 6)


def test_filters_of_a_direction_have_the_norms_of_the_weights():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))
    parameters = list(model.parameters())
    count = sum(p.numel() for p in parameters)
    direction = filter_normalised(torch.randn(count), parameters)
    pieces = direction.split([p.numel() for p in parameters])
    for piece, parameter in zip(pieces, parameters):
        piece = piece.view_as(parameter)
        if parameter.ndim == 1:
            assert piece.abs().sum() == 0
        else:
            torch.testing.assert_close(
                piece.flatten(1).norm(dim=1), parameter.detach().flatten(1).norm(dim=1)
            )


def test_a_filter_that_is_zero_stays_where_it_is():
    weight = torch.zeros(2, 3)
    assert filter_normalised(torch.ones(6), [weight]).abs().sum() == 0
    assert filter_normalised(torch.zeros(6), [weight + 1]).isfinite().all()


def test_random_directions_are_reproducible_and_orthonormal(objective):
    first = random_directions(objective, 3, seed=5, filters=False)
    again = random_directions(objective, 3, seed=5, filters=False)
    assert all(map(torch.equal, first, again))
    stacked = torch.stack(first)
    torch.testing.assert_close(stacked @ stacked.T, torch.eye(3).double())


def two_states():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).double()
    states = []
    for _ in range(2):
        for x, _y in batches():
            model.train()(x)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    return model, states


def test_the_ends_of_the_line_between_checkpoints_are_the_checkpoints():
    model, (first, second) = two_states()
    objective = Objective(model, F.cross_entropy, batches())
    found = between(objective, first, second, [0.0, 0.5, 1.0])
    for state, loss in ((first, found.losses[0]), (second, found.losses[2])):
        model.load_state_dict(state)
        assert objective.loss() == loss
    mixed = {k: (first[k] + second[k]) / 2 if v.is_floating_point() else v
             for k, v in first.items()}  # fmt: skip
    model.load_state_dict(mixed)
    assert objective.loss() == pytest.approx(found.losses[1], rel=1e-12)


def test_the_model_is_as_before_whatever_happens():
    model, (first, second) = two_states()
    with torch.no_grad():
        model[0].weight.fill_(0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objective = Objective(model, F.cross_entropy, batches())
    between(objective, first, second, [0.3])

    def fail(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        between(objective, first, second, [0.3, 0.6], progress=fail)
    with pytest.raises(KeyboardInterrupt):
        line(objective, torch.ones(objective.dimension).double(), [0.1], progress=fail)
    now = model.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)


def test_a_state_of_another_model_is_refused():
    model, (first, _) = two_states()
    objective = Objective(model, F.cross_entropy, batches())
    with pytest.raises(ValueError, match="second is no state_dict"):
        between(objective, first, network().state_dict(), [0.0])
