"""Small groups leave as if they were empty, in every kind of part; all else is unchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from support.few_patients import site
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Mean, Sum, Update
from fedquilt.core.tree import same_bits
from fedquilt.methods.cbafed import CBAFed
from fedquilt.methods.fedalc import FedALC
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedaws import FedAwS
from fedquilt.methods.fedirm import FedIRM
from fedquilt.methods.fedlsm import FedLSM
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.methods.flag import FLAG
from fedquilt.methods.scene_gcn import SceneGCN
from fedquilt.methods.spherefed import SphereFed
from fedquilt.models.scenes import CENTRES, COUNTS, MATRICES
from fedquilt.privacy.disclosure_floor import DisclosureFloor, suppress
from fedquilt.privacy.transform import apply_survey_transforms, apply_transforms
from fedquilt.training.averaging import NEGLIGIBLE


def floored(method: Any, update: Update, min_cell: int, **site_settings: bool) -> Any:
    data = site(**site_settings)
    state = {"tags": torch.full((8, 3), -1, dtype=torch.int8)}
    return DisclosureFloor(min_cell).on_client(method, data, state, update)


def surveyed(method: Any, min_cell: int, **site_settings: bool) -> Any:
    data = site(**site_settings)
    return DisclosureFloor(min_cell).on_survey(method, data, method.survey(data))


def rows(weight: Tensor | float) -> Mean:
    return Mean({"weight": torch.ones(3, 2), "bias": torch.ones(3)}, weight)


def test_a_class_with_a_small_side_loses_both_prototypes():
    """7 and 1 images of class 1: the 1 is the sum over another class's sides, less the 7."""
    sent = Mean(torch.ones(3, 2, 4), tensor([[3.0, 5.0], [7.0, 1.0], [0.0, 0.0]]))
    part = floored(FedMLP(), {"prototypes": sent}, 3)["prototypes"]
    assert part.weight.tolist() == [[3.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    assert part.value.sum((1, 2)).tolist() == [8.0, 0.0, 0.0]
    assert part.value.dtype == torch.float32


def test_a_class_without_positives_looks_like_one_with_few():
    data = site()
    no_stones = torch.where(torch.arange(3) == 1, 0, data.labels)
    sent = Mean(torch.ones(3, 2, 4), tensor([[3.0, 5.0], [8.0, 0.0], [0.0, 0.0]]))
    data = replace(data, labels=no_stones)
    part = DisclosureFloor(3).on_client(FedMLP(), data, {}, {"prototypes": sent})["prototypes"]
    assert part.weight.tolist() == [[3.0, 5.0], [0.0, 0.0], [0.0, 0.0]]


def test_patients_count_if_their_ids_are_given():
    """Class 0 has 5 positives of 3 patients."""
    sent = Mean(torch.ones(3, 3), tensor([8.0, 8.0, 0.0]))
    by_image = floored(FedIRM(), {"relation": sent}, 4)["relation"]
    assert by_image.weight.tolist() == [8.0, 0.0, 0.0]
    by_patient = floored(FedIRM(), {"relation": sent}, 4, patients=True)["relation"]
    assert by_patient.weight.tolist() == [0.0, 0.0, 0.0]
    assert not by_patient.value.any()


@pytest.mark.parametrize(
    ("min_cell", "suppresses"), [(0, False), (1, False), (5, False), (6, True)]
)
def test_exactly_the_floor_is_enough(min_cell, suppresses):
    """Class 0 has exactly 5 positives."""
    sent = Mean(torch.ones(3, 3), tensor([8.0, 0.0, 0.0]))
    part = floored(FedIRM(), {"relation": sent}, min_cell)["relation"]
    assert (part.weight[0] == 0) == suppresses


def test_without_a_floor_nothing_changes():
    update = {"anything": Sum(torch.ones(3))}
    assert floored(FedAvg(), update, 0) is update


@pytest.mark.parametrize(
    ("head_rows", "sent", "left"),
    [
        ("all", [8.0, 8.0, 8.0], [8.0, 8.0, 8.0]),
        ("annotators", [8.0, 8.0, 0.0], [8.0, 8.0, 0.0]),
        ("annotated", [8.0, 8.0, 0.0], [8.0, 8.0, 0.0]),
        ("positives", [5.0, 1.0, 0.0], [5.0, 0.0, 0.0]),
    ],
)
def test_head_rows_are_dropped_if_their_weight_counts_few_patients(head_rows, sent, left):
    head = floored(FedAvg(head_rows=head_rows), {"head": rows(tensor(sent))}, 3)["head"]
    assert head.weight.tolist() == left
    kept = [float(weight > 0) for weight in left]
    assert head.value["bias"].tolist() == kept
    assert head.value["weight"].tolist() == [[each, each] for each in kept]


def test_few_annotated_images_count_as_none():
    data = site()
    known = data.known.clone()
    known[:6, 1] = False  # 2 of class 1 are left
    data = replace(data, known=known)
    floor, method = DisclosureFloor(3), FedAvg(head_rows="annotated")
    answer = floor.on_survey(method, data, method.survey(data))
    assert answer["annotators"].value.tolist() == [1.0, 0.0, 0.0]
    head = floor.on_client(method, data, {}, {"head": rows(tensor([8.0, 2.0, 0.0]))})["head"]
    assert head.weight.tolist() == [8.0, 0.0, 0.0]


def test_the_number_of_blank_labels_reveals_that_of_the_others():
    """All but 2 images of a class are blank: the confident share has a weight of 6 of 8."""
    data = site()
    known = data.known.clone()
    known[:6, 1] = False
    sent = Mean(torch.ones(3), tensor([0.0, 6.0, 8.0]))
    update = {"difficulty": sent}
    part = DisclosureFloor(3).on_client(FedMLP(), replace(data, known=known), {}, update)
    assert part["difficulty"].weight.tolist() == [0.0, 0.0, 8.0]


def test_a_sum_loses_the_small_class():
    update = {"squares": Sum(torch.ones(3, 2, 2)), "products": Sum(torch.ones(3, 2))}
    left = floored(SphereFed(), update, 3)
    assert left["squares"].value.sum((1, 2)).tolist() == [4.0, 0.0, 0.0]
    assert left["products"].value.sum(1).tolist() == [2.0, 0.0, 0.0]


def test_counts_of_a_survey():
    answer = surveyed(FedLSM(), 3)
    assert answer["positives"].value.tolist() == [5.0, 0.0, 0.0]
    assert answer["annotated"].value.tolist() == [8.0, 0.0, 0.0]  # 8 would reveal the 1, as 8 - 7
    assert surveyed(FedAwS(), 3)["owned"].value.tolist() == [True, False, False]
    assert surveyed(FedAwS(), 3)["annotators"].value.tolist() == [1.0, 1.0, 0.0]


def test_records_lose_rare_labels_and_empty_ones_are_dropped():
    data = site()
    images = data.images.clone()
    images[:, 0, 0, 0] = torch.arange(8)
    labels = data.labels.clone()
    labels[7] = tensor([0, 1, 0])  # a record of the rare class 1 alone
    data = replace(data, images=images, labels=labels)
    method = FedALC()
    sent = method.survey(data)["codes"].value
    assert sent["positives"].sum(0).tolist() == [5, 2, 0]
    left = DisclosureFloor(3).on_survey(method, data, method.survey(data))["codes"]
    assert left.any_length
    assert left.value["positives"].tolist() == [[True, False, False]] * 5
    rare_alone = [code for code, has in zip(*map(Tensor.tolist, sent.values())) if not has[0]]
    assert len(rare_alone) == 1
    assert rare_alone[0] not in left.value["codes"].tolist()


def test_too_few_records_count_as_none():
    left = surveyed(FedALC(), 6)["codes"].value  # 5 images with positives
    assert [tuple(leaf.shape) for leaf in left.values()] == [(0, 16), (0, 3)]


def test_shares_of_all_classes_stay_together():
    """The body's weight is the sum over classes: the last share would follow from the others."""
    data = site()
    known = data.known.clone()
    known[:6, 1] = False
    sent = Mean(tensor([0.8, 0.2, 0.0]), torch.full((3,), 10.0))
    for floor, weight in ((2, 10.0), (3, 0.0)):
        update = {"class_share": sent}
        part = DisclosureFloor(floor).on_client(CBAFed(), replace(data, known=known), {}, update)
        assert part["class_share"].weight.tolist() == [weight] * 3


def test_a_suppressed_whole_part_keeps_a_negligible_weight():
    """FLAG's weight counts positives, here of 5 images."""
    update = {"body": Mean({"w": torch.ones(2)}, 2.5), "head": rows(torch.full((3,), 2.5))}
    enough = floored(FLAG(), update, 5)
    assert (float(enough["body"].weight), enough["head"].weight.tolist()) == (2.5, [2.5] * 3)
    few = floored(FLAG(), update, 6)
    assert float(few["body"].weight) == NEGLIGIBLE
    assert few["body"].value["w"].tolist() == [0.0, 0.0]
    assert few["head"].weight.tolist() == [0.0] * 3


def test_pseudo_labelled_positives_count_like_annotated_ones():
    tags = torch.full((8, 3), -1, dtype=torch.int8)
    tags[:4, 2] = 1
    update = {"head": rows(tensor([9.0, 2.0, 7.0]))}
    part = DisclosureFloor(3).on_client(FedLSM(), site(), {"tags": tags}, update)["head"]
    assert part.weight.tolist() == [9.0, 0.0, 7.0]


def test_scenes_of_few_images_are_withheld():
    """Two passes over 8 images: 10 and 6 counts are of 5 and 3 images at least."""
    matrices = torch.zeros(3, 3, 3)
    matrices[0] = tensor([[10.0, 2.0, 0.0], [2.0, 8.0, 0.0], [0.0, 0.0, 0.0]])
    matrices[1] = 6.0
    scenes = {CENTRES: torch.ones(3, 2), MATRICES: matrices, COUNTS: tensor([10.0, 6.0, 0.0])}
    sent = {"prototypes": torch.ones(3, 2), "matrices": torch.ones(3, 3, 3), "used": torch.ones(3)}
    floor, update = DisclosureFloor(4), {"scenes": Gather(sent)}
    left = floor.on_client(SceneGCN(), site(), {"scenes": scenes}, update)["scenes"].value
    assert left["used"].tolist() == [1.0, 0.0, 0.0]
    assert left["prototypes"].tolist() == [
        [1.0, 1.0],
        [0.0, 0.0],
        [0.0, 0.0],
    ]  # an empty scene neither
    # Of the pairs of the first scene, 2 counts are of 1 image; 8 are of 4.
    assert left["matrices"][0].tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    assert not left["matrices"][1:].any()


def test_one_weight_for_several_classes_is_kept():
    part = suppress(Mean(tensor([1.0, 2.0]), 5.0), tensor([True, False]))
    assert isinstance(part, Mean)
    assert part.value.tolist() == [0.0, 2.0]
    assert float(part.weight) == 5.0


def test_a_site_with_few_patients_sends_nothing():
    with pytest.raises(UserError, match="client 'site' has 8 images, and min_cell = 9"):
        surveyed(FedAvg(), 9)
    with pytest.raises(UserError, match="client 'site' has 6 patients, and min_cell = 7"):
        surveyed(FedAvg(), 7, patients=True)


def test_a_part_without_provenance_does_not_leave():
    with pytest.raises(
        UserError, match=r"FedAvg does not say which images .* 'secrets'.*provenance"
    ):
        floored(FedAvg(), {"secrets": Sum(torch.ones(3))}, 3)
    with pytest.raises(UserError, match="min_cell must be 0 or more, found -1"):
        DisclosureFloor(-1)


@dataclass(frozen=True)
class Halving:
    """A second transform, to check that several are applied in order."""

    def on_client(self, method: Any, data: Any, state: Any, update: Update) -> Update:
        return {name: Sum(part.value / 2) for name, part in update.items()}

    def on_survey(self, method: Any, data: Any, answer: Update) -> Update:
        return self.on_client(method, data, {}, answer)


def test_transforms_are_applied_in_order():
    """Class 1 has a single positive, so its count is withheld; class 0 has 5."""
    transforms = (Halving(), DisclosureFloor(3), Halving())
    update = {"positives": Sum(tensor([5.0, 1.0, 0.0]))}
    left = apply_transforms(transforms, FedLSM(), site(), {}, update)
    assert left["positives"].value.tolist() == [1.25, 0.0, 0.0]
    assert same_bits(
        left["positives"].value,
        apply_survey_transforms(transforms, FedLSM(), site(), update)["positives"].value,
    )
