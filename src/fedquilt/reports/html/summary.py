"""The summary in plain words: sentences that are templates over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedquilt.core.wording import counted
from fedquilt.reports.html.findings import CHANCE, FEW, Estimate, Finding
from fedquilt.reports.html.formatting import listed, named, percent

MAX_LIMITS = 3
MEANING_OF_AUC = (
    "AUC: of two random test images, one with the finding and one without, the share of pairs in "
    "which the model gives the higher score to the one with the finding. 50 % is guessing."
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the sentences need to know of a run, besides its findings."""

    method: str
    sites: int
    site_word: str = "site"  # "site" or "client"
    classes: int
    annotated_by_site: tuple[int, ...]  # how many classes each site annotates
    train_images: int | None = None  # None: a study's images stay at the sites
    train_patients: int | None = None
    test_images: int | None = None
    test_patients: int | None = None
    tested_at: int | None = None  # sites of a study, where the server tested nothing
    on_validation: int = 0  # of them, with no other images than those that the round was chosen on
    patients_in_both: int | None = None  # None: the data do not name patients
    model_count: int = 1  # more than one: every client has its own
    served_round: int | None  # None: every client's model has its own
    rounds: int
    chosen_on: str | None = None  # the part of the data that the round was chosen on
    thresholds_fitted: bool = False
    calibrated: bool = False
    missing_images: int = 0  # of a published data set


def training_sentences(setting: Setting) -> list[str]:
    """Say who trained what on how much."""
    models = "One model was" if setting.model_count == 1 else "One model per site was"
    seen = "" if setting.train_images is None else f" on {_amount_trained(setting)}"
    sites = counted(setting.sites, setting.site_word)
    return [
        f"{models} trained with {setting.method} at {sites}{seen}, to say of an image which of "
        f"{counted(setting.classes, 'finding')} it shows.",
        _annotation(setting),
    ]


def _amount_trained(setting: Setting) -> str:
    return _amount(setting.train_images or 0, setting.train_patients)


def _amount(images: int, patients: int | None) -> str:
    of = "" if patients is None else f" of {counted(patients, 'patient')}"
    return f"{counted(images, 'image')}{of}"


def _annotation(setting: Setting) -> str:
    least, most = min(setting.annotated_by_site), max(setting.annotated_by_site)
    word, total = setting.site_word, setting.classes
    if least == total:
        return f"Every {word} annotated all findings."
    share = f"{least}" if least == most else f"between {least} and {most}"
    nobody = f"; no {word} annotated all of them" if most < total else ""
    return (
        f"Every {word} annotated {share} of the {counted(total, 'finding')}{nobody}. What was not "
        "annotated is not taken for absent."
    )


def evaluation_sentence(setting: Setting) -> str:
    """Say on what the model was tested, and whether its patients were trained on."""
    if setting.tested_at is not None:
        return _tested_at_sites(setting)
    if setting.test_images is None:
        return "How many images it was tested on is not recorded in the run folder."
    amount = _amount(setting.test_images, setting.test_patients)
    start = f"It was tested on {amount}"
    if setting.patients_in_both == 0:
        return f"{start}, none of whom are in the training images."
    if setting.patients_in_both:
        shared = counted(setting.patients_in_both, "patient")
        are = "is" if setting.patients_in_both == 1 else "are"
        return f"{start}, but {shared} of these {are} also in the training images: too good."
    return (
        f"{start} that it was not trained on. The data do not name patients, so images of one "
        "patient may be on both sides."
    )


def _tested_at_sites(setting: Setting) -> str:
    amount = _amount(setting.test_images or 0, setting.test_patients)
    found = (
        f"{counted(setting.tested_at or 0, 'site')} tested it on {amount} of their own that it was "
        "not trained on; intervals of several sites are for another site."
    )
    if setting.on_validation:
        found += (
            f" {counted(setting.on_validation, 'site')} had only validation images, on which the "
            "round was chosen: a little too good."
        )
    return found


def class_sentences(findings: Sequence[Finding]) -> list[str]:
    """Say which finding is seen best and which worst, among those that the test can judge."""
    judged = [each for each in findings if each.judgement in ("measured", "chance")]
    if not findings:
        return ["No model was tested, so nothing is known of what it sees."]
    if not judged:
        return ["No finding has enough test images to say how well the model sees it."]
    ranked = sorted(judged, key=lambda each: (-(each.auc.value or 0.0), each.place))
    best, worst = ranked[0], ranked[-1]
    sentences = [f"It sees {_described(best)} best."]
    if worst is not best:
        sentences.append(f"It sees {_described(worst)} least well.")
    return sentences


def _described(finding: Finding) -> str:
    return f"{named(finding.name)} (AUC {interval(finding.auc)}; {positives(finding)})"


def interval(estimate: Estimate) -> str:
    """Return "84.2 %, 95 % interval 80.1 to 88.0", or the number alone."""
    text = f"{percent(estimate.value)} %"
    if estimate.has_interval:
        text += f", 95 % interval {percent(estimate.low)} to {percent(estimate.high)}"
    return text


def positives(finding: Finding) -> str:
    """Return how many test images, and patients if known, have the finding."""
    images = f"{counted(finding.positives, 'test image')} with it"
    if finding.positive_patients is None:
        return images
    return f"{counted(finding.positive_patients, 'patient')} with it"


def reliance_sentences(findings: Sequence[Finding]) -> list[str]:
    """Say for which findings the numbers must not be relied on."""
    total, sentences = len(findings), []
    named_patients = any(each.positive_patients is not None for each in findings)
    unit = "patients" if named_patients else "images"
    few = [each.name for each in findings if each.judgement == "few"]
    if few:
        sentences.append(
            f"For {len(few)} of {counted(total, 'finding')} fewer than {FEW} {unit} with it, or "
            f"fewer than {FEW} without it, were tested ({listed(few)}): do not rely on "
            f"{'it' if len(few) == 1 else 'them'}."
        )
    chance = [each.name for each in findings if each.judgement == "chance"]
    if chance:
        sentences.append(
            f"For {len(chance)} of {counted(total, 'finding')} the interval reaches "
            f"{percent(CHANCE, 0)} % or less ({listed(chance)}): the model may be guessing."
        )
    untested = [each.name for each in findings if each.judgement == "untested"]
    if untested:
        sentences.append(
            f"{len(untested)} of {counted(total, 'finding')} could not be tested at all "
            f"({listed(untested)}): the test images lack positives or negatives."
        )
    judged = [each for each in findings if each.auc.value is not None]
    if judged and not any(each.auc.has_interval for each in judged):
        sentences.append(
            "No intervals were computed, so differences of a few points may be chance."
        )
    return sentences


def limits(setting: Setting) -> list[str]:
    """Return the three limits that matter most for this run."""
    found = ["It is a research model, not a medical device; no person's care may depend on it."]
    if setting.missing_images:
        missing = counted(setting.missing_images, "image")
        found.append(
            f"Only a part of the published data set was there; {missing} of it were left out: "
            "the numbers are not those of the whole data set."
        )
    if setting.patients_in_both:
        found.append("Patients are in both training and test images, so all numbers are too high.")
    if setting.chosen_on == "test":
        found.append("The round was chosen on the test images, so all numbers are too high.")
    if not setting.calibrated:
        found.append(
            "Its scores are not calibrated: a score of 80 % does not mean that 80 of 100 such "
            "images show the finding."
        )
    found.append(
        "It was tested on images of the same source as those it was trained on: at another "
        "hospital, with other devices or patients, it may be worse."
    )
    if not setting.thresholds_fitted:
        found.append("No threshold was fitted: where it says present, nobody has set the costs.")
    return found[:MAX_LIMITS]
