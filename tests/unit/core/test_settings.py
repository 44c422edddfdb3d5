"""Plain data to frozen dataclasses, with strict names and types, and back without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.own_code import own_name, remember
from fedquilt.core.settings import added, plain, read


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    counts: tuple[int, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Animal:
    legs: int = 4


@dataclass(frozen=True, kw_only=True)
class Bird(Animal):
    wingspan: float = 1.0
    song: str | None = None

    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"small": {"wingspan": 0.2, "legs": 2}}


@dataclass(frozen=True, kw_only=True)
class Fish(Animal):
    legs: int = 0
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "deep": {"legs": 1, "lamp": True, "depth": "abyss"}
    }
    fixed: ClassVar[Mapping[str, object]] = {"lamp": False, "depth": "reef"}


@dataclass(frozen=True, kw_only=True)
class DeepFish(Fish):
    fixed: ClassVar[Mapping[str, object]] = {"lamp": True, "depth": "abyss"}


@dataclass(frozen=True, kw_only=True)
class Outer:
    needed: int
    inner: Inner = Inner()
    pet: Animal = field(default_factory=Bird)
    mode: Literal["fast", "slow"] = "fast"
    channels: Literal[1, 3] = 3
    on: bool = False
    text: str = "x"
    limit: int | None = None
    chosen: str | Inner = "none"
    table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


TABLES = {
    Animal: (
        "animal",
        {
            "bird": f"{__name__}:Bird",
            "fish": f"{__name__}:Fish",
            "plain-animal": f"{__name__}:Animal",
        },
    ),
}


def outer(**settings: object) -> Outer:
    return read(Outer, {"needed": 1} | settings, "recipe", TABLES)


@dataclass(frozen=True, kw_only=True)
class Particular:
    """Its default inner settings differ from Inner's defaults."""

    inner: Inner = Inner(rate=9.0, counts=(7,))
    pet: Animal = Bird(wingspan=3.0)
    made: Inner = field(default_factory=lambda: Inner(rate=8.0, counts=(6,)))
    later: int = added(5)


def test_settings_left_out_are_those_of_a_default_factory_too():
    found = read(Particular, {"made": {"rate": 2}}, "recipe", TABLES)
    assert found.made == Inner(rate=2.0, counts=(6,))


def test_an_added_field_is_written_only_when_it_is_set():
    assert "later" not in plain(Particular(), TABLES)
    changed = plain(Particular(later=6), TABLES)
    assert changed["later"] == 6
    assert read(Particular, changed, "recipe", TABLES) == Particular(later=6)
    assert read(Particular, plain(Particular(), TABLES), "recipe", TABLES) == Particular()


def test_settings_left_out_are_those_of_the_field_not_of_its_type():
    found = read(Particular, {"inner": {"rate": 2}}, "recipe", TABLES)
    assert found.inner == Inner(rate=2.0, counts=(7,))


def test_an_entry_chosen_by_name_starts_from_its_class_defaults():
    found = read(Particular, {"pet": {"name": "bird"}}, "recipe", TABLES)
    assert found.pet == Bird(wingspan=1.0)


def test_everything_at_once():
    found = outer(
        inner={"rate": 2, "counts": [1, 2], "pair": [1, 2.5]},
        pet={"name": "bird", "song": "peep"},
        mode="slow",
        on=True,
        limit=3,
        chosen={"rate": 0.25},
        table={"a": ["x", "y"]},
    )
    assert found == Outer(
        needed=1,
        inner=Inner(rate=2.0, counts=(1, 2), pair=(1.0, 2.5)),
        pet=Bird(song="peep"),
        mode="slow",
        on=True,
        limit=3,
        chosen=Inner(rate=0.25),
        table={"a": ("x", "y")},
    )
    assert type(found.inner.rate) is float
    assert [type(number) for number in found.inner.pair] == [float, float]
    assert read(Outer, plain(found, TABLES), "recipe", TABLES) == found


def test_defaults_are_left_unchanged():
    assert outer() == Outer(needed=1)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"inne": {}}, r"^recipe has no field 'inne'; did you mean 'inner'\?$"),
        ({"inner": {"rte": 1}}, r"^recipe.inner has no field 'rte'; did you mean 'rate'\?$"),
        (
            {"pet": {"name": "bird", "wingspn": 1}},
            r"^recipe.pet has no field 'wingspn'; did you mean 'wingspan'\?$",
        ),
        ({"qqqqqq": 1}, "^recipe has no field 'qqqqqq'; known: channels, chosen, inner"),
        ({"pet": {"name": "brid"}}, r"unknown animal 'brid'; did you mean 'bird'\?"),
        ({"pet": {}}, r"recipe.pet.name is missing: which animal\?.*bird, fish, plain-animal"),
        (
            {"pet": {"name": "bird", "variant": "smal"}},
            r"recipe.pet.variant: Bird has none called 'smal'; did you mean 'small'\?",
        ),
        (
            {"pet": {"name": "plain-animal", "variant": "small"}},
            "recipe.pet.variant: Animal has none called 'small'; known: none",
        ),
    ],
)
def test_an_unknown_name_suggests_the_closest_one(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        outer(**settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"needed": "3"}, r"recipe.needed must be int, found '3' \(str\)"),
        ({"needed": 3.0}, r"recipe.needed must be int, found 3.0 \(float\)"),
        ({"needed": True}, r"recipe.needed must be int, found True \(bool\)"),
        ({"needed": None}, r"recipe.needed must be int, found None \(NoneType\)"),
        ({"on": 1}, r"recipe.on must be bool, found 1 \(int\)"),
        ({"on": "true"}, r"recipe.on must be bool, found 'true' \(str\)"),
        ({"text": 5}, r"recipe.text must be str, found 5 \(int\)"),
        ({"inner": {"rate": "fast"}}, r"recipe.inner.rate must be float, found 'fast' \(str\)"),
        ({"inner": {"rate": False}}, r"recipe.inner.rate must be float, found False \(bool\)"),
        ({"inner": 3}, "recipe.inner must be a table of settings, found 3"),
        ({"pet": "bird"}, "recipe.pet must be a table of settings, found 'bird'"),
        ({"inner": {"counts": 3}}, "recipe.inner.counts must be a list, found 3"),
        ({"inner": {"counts": "12"}}, "recipe.inner.counts must be a list, found '12'"),
        ({"inner": {"counts": [1, "2"]}}, r"recipe.inner.counts\[1\] must be int, found '2'"),
        ({"inner": {"pair": [1]}}, "recipe.inner.pair must have 2 entries, found 1"),
        ({"inner": {"pair": [1, 2, 3]}}, "recipe.inner.pair must have 2 entries, found 3"),
        ({"mode": "fats"}, "recipe.mode must be one of 'fast', 'slow'; found 'fats'"),
        ({"mode": ["fast"]}, "recipe.mode must be one of 'fast', 'slow'"),
        ({"channels": 2}, "recipe.channels must be one of 1, 3; found 2"),
        ({"channels": True}, "recipe.channels must be one of 1, 3; found True"),
        ({"channels": 3.0}, "recipe.channels must be one of 1, 3; found 3.0"),
        ({"limit": "many"}, r"recipe.limit must be int, found 'many'"),
        ({"chosen": 5}, "recipe.chosen must be str, found 5.*; or recipe.chosen must be a table"),
        ({"chosen": {"rte": 1}}, "recipe.chosen has no field 'rte'"),
        ({"table": ["a"]}, r"recipe.table must be a table, found \['a'\]"),
        ({"table": {"a": "x"}}, "recipe.table.a must be a list, found 'x'"),
        ({"table": {"a": [1]}}, r"recipe.table.a\[0\] must be str, found 1"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        outer(**settings)


@pytest.mark.parametrize("name", [5, None, ["bird"], {"a": 1}, True])
def test_a_name_that_is_not_a_string_is_a_user_error(name):
    with pytest.raises(UserError, match=r"recipe\.pet"):
        outer(pet={"name": name})


@pytest.mark.parametrize("variant", [5, ["small"], {"a": 1}])
def test_a_variant_that_is_not_a_string_is_a_user_error(variant):
    with pytest.raises(UserError, match=r"recipe\.pet\.variant"):
        outer(pet={"name": "bird", "variant": variant})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(number):
    """JSON has no NaN or infinity, so the run's recipe could not be saved."""
    with pytest.raises(UserError, match=r"recipe\.inner\.rate"):
        outer(inner={"rate": number})


def test_a_missing_field_is_named():
    with pytest.raises(UserError, match=r"^recipe lacks needed$"):
        read(Outer, {}, "recipe", TABLES)


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_a_value_that_is_not_a_table_is_refused(value):
    with pytest.raises(UserError, match="recipe must be a table of settings"):
        read(Outer, value, "recipe", TABLES)


def test_a_variant_sets_fields_and_own_settings_win():
    assert outer(pet={"name": "bird", "variant": "small"}).pet == Bird(wingspan=0.2, legs=2)
    assert outer(pet={"name": "bird", "variant": "small", "legs": 1}).pet == Bird(
        wingspan=0.2, legs=1
    )


def test_fixed_settings_choose_the_class_and_are_written_with_it():
    deep = outer(pet={"name": "fish", "variant": "deep"}).pet
    assert deep == DeepFish(legs=1)
    stored = {"name": "fish", "legs": 1, "lamp": True, "depth": "abyss"}
    assert plain(deep, TABLES) == stored
    assert outer(pet=stored).pet == deep
    assert plain(Fish(), TABLES) == {"name": "fish", "legs": 0, "lamp": False, "depth": "reef"}
    assert outer(pet={"name": "fish", "lamp": False}).pet == Fish()


@pytest.mark.parametrize("fixed", [{"lamp": True}, {"lamp": True, "depth": "reef"}])
def test_fixed_settings_cannot_be_changed_one_by_one(fixed):
    message = r"recipe\.pet: lamp.* only be changed together, by a variant, .*variants: deep"
    with pytest.raises(UserError, match=message):
        outer(pet={"name": "fish", **fixed})


def test_reading_does_not_change_its_input():
    settings = {"needed": 1, "pet": {"name": "bird", "variant": "small"}}
    read(Outer, settings, "recipe", TABLES)
    assert settings == {"needed": 1, "pet": {"name": "bird", "variant": "small"}}
    assert Bird.variants["small"] == {"wingspan": 0.2, "legs": 2}


def test_a_dataclass_instance_is_accepted():
    assert outer(inner=Inner(rate=3.0), pet=Bird()).inner.rate == 3.0


def test_the_plain_form_holds_the_registered_name():
    assert plain(Bird(song="peep"), TABLES) == {
        "name": "bird",
        "legs": 4,
        "wingspan": 1.0,
        "song": "peep",
    }


@dataclass(frozen=True, kw_only=True)
class Stray(Animal):
    teeth: int = 1


def test_a_class_in_no_table_is_named_by_its_module():
    form = plain(Stray(teeth=2), TABLES)
    assert form == {"name": f"{__name__}:Stray", "legs": 4, "teeth": 2}
    remember(Stray)
    assert outer(pet=form).pet == Stray(teeth=2)


def test_an_own_class_must_be_of_the_family():
    remember(Inner)
    with pytest.raises(UserError, match=r"must be a dataclass derived from Animal, found .*Inner"):
        outer(pet={"name": own_name(Inner)})
