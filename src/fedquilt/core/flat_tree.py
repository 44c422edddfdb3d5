"""FlatTree: a branch of tensors held in a few one-dimensional ones, so that one call treats all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

ALIGNED = 64  # numbers: every tensor begins where a kernel can read many bytes at once

# Names, shapes and dtypes of the leaves of a tree, in order.
Signature: TypeAlias = tuple[tuple[str, torch.Size, torch.dtype], ...]


class Place(NamedTuple):
    """Where a tensor lies: in which flat tensor, from which number on."""

    name: str
    flat: int
    start: int
    shape: torch.Size
    stride: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + -(-self.shape.numel() // ALIGNED) * ALIGNED


class Range(NamedTuple):
    flat: int
    start: int
    end: int


class Layout:
    """The places of a branch's tensors. Equal layouts are one object."""

    def __init__(self, places: tuple[Place, ...]) -> None:
        self.places = places
        self._by_name = {place.name: place for place in places}
        self.counts = [0] * (1 + max(place.flat for place in places))  # numbers without the gaps
        for place in places:
            self.counts[place.flat] += place.shape.numel()
        self._parts: dict[tuple[str, ...], tuple[Layout, tuple[Range, ...]] | None] = {}
        self._signatures: dict[tuple[str, tuple[torch.dtype, ...]], Signature] = {}

    @classmethod
    def of(cls, places: Iterable[Place]) -> Layout:
        return _interned(tuple(places))

    def signature(self, dtypes: tuple[torch.dtype, ...], prefix: str) -> Signature:
        key = (prefix, dtypes)
        if key not in self._signatures:
            self._signatures[key] = tuple(
                (prefix + place.name, place.shape, dtypes[place.flat]) for place in self.places
            )
        return self._signatures[key]

    def part(self, names: tuple[str, ...]) -> tuple[Layout, tuple[Range, ...]] | None:
        """Return the layout of these tensors and the ranges that hold them; None if scattered."""
        if names not in self._parts:
            self._parts[names] = self._part(names)
        return self._parts[names]

    def _part(self, names: tuple[str, ...]) -> tuple[Layout, tuple[Range, ...]] | None:
        if not names or any(name not in self._by_name for name in names):
            return None
        runs: list[list[Place]] = []
        for place in sorted((self._by_name[name] for name in names), key=lambda it: it[1:3]):
            last = runs[-1][-1] if runs else None
            if last is not None and (last.flat, last.end) == (place.flat, place.start):
                runs[-1].append(place)
            else:
                runs.append([place])
        if 2 * len(runs) > len(names):  # then one by one is no slower
            return None
        new = {
            place.name: place._replace(flat=number, start=place.start - run[0].start)
            for number, run in enumerate(runs)
            for place in run
        }
        ranges = tuple(Range(run[0].flat, run[0].start, run[-1].end) for run in runs)
        return Layout.of(new[name] for name in names), ranges


@cache
def _interned(places: tuple[Place, ...]) -> Layout:
    return Layout(places)


class FlatTree(dict[str, Tensor]):
    """A dict of tensors that are views of ``flats``, made when the first of them is asked for.

    Names and their order are those of the layout. It cannot be changed, only the numbers can. The
    gaps between tensors hold zeros, or what arithmetic makes of zeros.
    """

    def __init__(self, layout: Layout, flats: Iterable[Tensor]) -> None:
        super().__init__()
        self.layout, self.flats = layout, tuple(flats)

    def with_flats(self, flats: Iterable[Tensor]) -> FlatTree:
        return FlatTree(self.layout, flats)

    def signature(self, prefix: str = "") -> Signature:
        return self.layout.signature(tuple(flat.dtype for flat in self.flats), prefix)

    def byte_count(self) -> int:
        """Return it without the gaps."""
        counts = zip(self.layout.counts, self.flats)
        return sum(count * flat.element_size() for count, flat in counts)

    def part(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return these tensors: as a FlatTree on the same memory, unless they are scattered."""
        wanted = tuple(names)
        found = self.layout.part(wanted)
        if found is None:
            return {name: self[name] for name in wanted}
        layout, ranges = found
        return FlatTree(layout, (self.flats[it.flat][it.start : it.end] for it in ranges))

    def _make_views(self) -> None:
        if super().__len__():
            return
        begins = [flat.storage_offset() for flat in self.flats]
        for name, flat, start, shape, stride in self.layout.places:
            view = self.flats[flat].as_strided(shape, stride, begins[flat] + start)
            super().__setitem__(name, view)

    def __getitem__(self, name: str) -> Tensor:
        self._make_views()
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._make_views()
        return super().__iter__()

    def __len__(self) -> int:
        return len(self.layout.places)

    def __contains__(self, name: object) -> bool:
        self._make_views()
        return super().__contains__(name)

    def keys(self) -> Any:
        self._make_views()
        return super().keys()

    def values(self) -> Any:
        self._make_views()
        return super().values()

    def items(self) -> Any:
        self._make_views()
        return super().items()

    def get(self, name: str, otherwise: Any = None) -> Any:
        self._make_views()
        return super().get(name, otherwise)

    def copy(self) -> dict[str, Tensor]:
        return dict(self.items())

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return self.copy() | dict(other)

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return dict(other) | self.copy()

    def update(self, other: Mapping[str, Tensor]) -> None:  # type: ignore[override]
        """Accept the tensors that are there: torch's ``functional_call`` puts them back."""
        if any(self.get(name) is not tensor for name, tensor in other.items()):
            self._refuse()

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise TypeError("a FlatTree cannot be changed; make a dict of it first: {**tree}")

    __setitem__ = __delitem__ = __ior__ = pop = _refuse
    popitem = clear = setdefault = _refuse


def flat_copy(
    tensors: Mapping[str, Tensor],
    *,
    channels_last: bool = False,
    device: torch.device | None = None,
) -> FlatTree:
    """Copy tensors into new memory: one flat tensor per dtype, in the tensors' memory formats.

    Args:
        channels_last: the memory format of tensors with four axes, instead of their own.
    """
    places, lengths = [], dict.fromkeys((tensor.dtype for tensor in tensors.values()), 0)
    numbers = {dtype: number for number, dtype in enumerate(lengths)}
    for name, tensor in tensors.items():
        kept = torch.channels_last if channels_last and tensor.ndim == 4 else torch.preserve_format
        stride = torch.empty_like(tensor, device="meta", memory_format=kept).stride()
        place = Place(name, numbers[tensor.dtype], lengths[tensor.dtype], tensor.shape, stride)
        places.append(place)
        lengths[tensor.dtype] = place.end
    where = next(iter(tensors.values())).device if device is None else device
    flats = (torch.zeros(length, dtype=dtype, device=where) for dtype, length in lengths.items())
    copy = FlatTree(Layout.of(places), flats)
    with torch.no_grad():
        torch._foreach_copy_([*copy.values()], [*tensors.values()])
    return copy
