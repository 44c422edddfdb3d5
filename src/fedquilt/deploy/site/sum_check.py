"""What ``fedquilt site check`` says about how a study sums what leaves the site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedquilt.core.fixed_point import Scales
from fedquilt.deploy.secure.site_key import key_fingerprint
from fedquilt.deploy.secure.terms import FEWEST, fewest_of
from fedquilt.deploy.study import Study
from fedquilt.privacy.sent_parts import example_data, update_template
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.agreed_scales import round_scales, survey_scales

HOW = {
    "plain": "the server reads this site's numbers",
    "ring": "as integers; the server reads this site's numbers",
    "secure": "masked; the server reads the sum over sites only",
}
PLACES = {"plain": "plain", "ring": "integers", "secure": "masked"}


@dataclass(frozen=True)
class SumCheck:
    """Lines for a person, and the same facts for a program."""

    lines: tuple[str, ...]
    facts: dict[str, Any]
    refused: str | None  # why the site's policy does not accept the study's summation
    leaves_as: dict[str, str]  # by part
    otherwise: str  # how a part leaves whose scale is not known before training


def check_sums(study: Study, site: str, policy: SitePolicy) -> SumCheck:
    """Describe how parts leave, who may be lost, and which classes have few annotators."""
    summation = study.recipe.summation
    refused = policy.refuses_summation(summation)
    lines, facts = [f"how it leaves: {HOW[summation]}"], {"summation": summation}
    scales = _scales(study)
    leaves_as = {
        name: f"{PLACES[summation]}, up to {scale.largest:g}, {scale.value_bits} bits of fraction"
        for name, scale in scales.items()
    }
    if study.is_secure:
        secure_lines, secure_facts = _secure(study, site, policy)
        lines, facts = [*lines, *secure_lines], facts | secure_facts
    if refused is not None:
        lines.append(f"refused: {refused}")
    return SumCheck(tuple(lines), facts, refused, leaves_as, PLACES[summation])


def _scales(study: Study) -> Scales:
    recipe, images = study.recipe, study.agreed_images
    asked = recipe.method.survey(example_data(study.task))
    update = update_template(recipe.method, study.task)
    once = survey_scales(recipe.rules, asked, [*images.values()])
    often = round_scales(recipe.rules, recipe.method, study.task, 0, update, images)
    return {**(once or {}), **(often or {})}


def _secure(study: Study, site: str, policy: SitePolicy) -> tuple[list[str], dict[str, Any]]:
    terms = study.sum_terms
    needed = fewest_of(terms.cohort)
    own = policy.min_contributors or FEWEST
    thin = terms.thin_classes(study.site_names, own)
    fingerprints = {
        each.name: key_fingerprint(str(each.key)) for each in study.sites if each.name != site
    }
    lines = [
        f"a sum counts with {needed} of {terms.cohort} sites; {terms.cohort - needed} may be lost "
        "in a round",
        f"it stays hidden unless {needed} sites, or their keys, work with the server",
    ]
    if thin and policy.min_contributors is None:
        told = "numbers" if study.few_annotators == "reveal" else "numbers, with their noise,"
        lines.append(
            f"fewer than {own} sites annotate {', '.join(thin)}: the server learns single sites' "
            f"{told} about them, as the study agreed (few_annotators = '{study.few_annotators}')"
        )
    elif thin:
        lines.append(
            f"fewer than {own} sites annotate {', '.join(thin)}: this site will refuse every sum "
            "(policy.min_contributors)"
        )
    lines += [
        f"key of {name}, to be read out on the telephone: {text}"
        for name, text in fingerprints.items()
    ]
    facts = {
        "sites_needed": needed,
        "sites_of_a_round": terms.cohort,
        "few_annotators": {"classes": thin, "study": study.few_annotators},
        "key_fingerprints": fingerprints,
    }
    return lines, facts
