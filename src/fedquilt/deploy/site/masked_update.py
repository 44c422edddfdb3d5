"""The checks that only the site can make once its update is masked, and the update as integers."""

from __future__ import annotations

from torch import Tensor

from fedquilt.core.fixed_point import Scales, as_vector, quantised
from fedquilt.core.norms import EarlierNorms
from fedquilt.core.payload import Update
from fedquilt.core.update_checks import check_update
from fedquilt.deploy.server.unannotated_rows import check_rows
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data
from fedquilt.training.agreed_bounds import round_bounds
from fedquilt.training.agreed_scales import round_scales, survey_scales
from fedquilt.training.method import State
from fedquilt.training.rounds import expected_update


def round_vector(
    study: Study, site: str, round_index: int, received: State, update: Update
) -> Tensor:
    """Return a round's update as integers; raise RefusedUpdate if it is beyond what was agreed.

    The server adds what it cannot see, so every bound that it would check is checked here.
    """
    recipe, agreed = study.recipe, study.agreed_images
    expected = expected_update(recipe.method, received, site, study.task)
    scales = round_scales(recipe.rules, recipe.method, study.task, round_index, expected, agreed)
    bounds = round_bounds(
        recipe.bounds,
        recipe.method,
        study.task,
        round_index,
        before=EarlierNorms(),
        images=agreed.get,
    )
    check_update(update, expected, site)
    check_rows(study, update, site)
    update = bounds.weighed(site, update)
    bounds.measure(site, update)
    return _integers(site, update, scales)


def survey_vector(study: Study, site: str, answer: Update) -> Tensor:
    """Return the survey's answer as integers."""
    expected = study.recipe.method.survey(example_data(study.task))
    scales = survey_scales(study.recipe.rules, expected, [*study.agreed_images.values()])
    check_update(answer, expected, site)
    check_rows(study, answer, site)
    return _integers(site, answer, scales)


def _integers(site: str, update: Update, scales: Scales | None) -> Tensor:
    assert scales is not None  # only floats have none
    return as_vector(
        {name: quantised(site, name, part, scales[name]) for name, part in update.items()}
    )
