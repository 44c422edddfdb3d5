"""Arithmetic on nested dicts of tensors: all that is sent, stored or saved has this shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import torch
from torch import Tensor

Tree: TypeAlias = "Tensor | Mapping[str, Tree]"
Weights: TypeAlias = dict[str, Tensor]

SEPARATOR = "/"


def tree_map(function: Callable[..., Tensor], tree: Tree, *others: Tree) -> Any:
    """Apply ``function`` leaf by leaf; every tree must have the names of the first.

    The result has the shape of ``tree``; its type is Any because a caller knows that shape.
    """
    if isinstance(tree, Tensor):
        if any(isinstance(other, Mapping) for other in others):
            raise ValueError("trees differ: expected a tensor, found names")
        return function(tree, *others)
    for other in others:
        if not isinstance(other, Mapping) or other.keys() != tree.keys():
            found = sorted(other) if isinstance(other, Mapping) else "a tensor"
            raise ValueError(f"trees differ: expected the names {sorted(tree)}, found {found}")
    if not others:  # as mostly: without a call of our own for every leaf
        return {
            name: function(branch) if isinstance(branch, Tensor) else tree_map(function, branch)
            for name, branch in tree.items()
        }
    return {
        name: tree_map(function, branch, *(other[name] for other in others))  # type: ignore[index]
        for name, branch in tree.items()
    }


def map_together(
    function: Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]], first: Tree, second: Tree
) -> Any:
    """As :func:`tree_map`, but ``function`` gets all leaves at once: a GPU is told once."""
    here, there = flatten(first), flatten(second)
    if here.keys() != there.keys():
        raise ValueError(f"trees differ: expected the names {sorted(here)}, found {sorted(there)}")
    made = iter(function([*here.values()], [there[path] for path in here]) if here else ())
    return tree_map(lambda _: next(made), first)


def write_all(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Overwrite tensors in place, all in one go: a GPU is told once, not for each."""
    if places:
        with torch.no_grad():
            torch._foreach_copy_(list(places), list(values))


def copies_of(values: Sequence[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    """The same numbers in memory of their own, perhaps in another dtype, all in one go."""
    copies = [torch.empty_like(value, dtype=dtype, requires_grad=False) for value in values]
    write_all(copies, values)
    return copies


def leaves(tree: Tree) -> Iterator[tuple[str, Tensor]]:
    """The ``(path, tensor)`` pairs of :func:`flatten`."""
    return iter(flatten(tree).items())


def flatten(tree: Tree) -> dict[str, Tensor]:
    """Nested names become paths, ``{"a": {"b": x}}`` becomes ``{"a/b": x}``.

    The path of a bare tensor is the empty string.
    """
    flat: dict[str, Tensor] = {}
    if isinstance(tree, Tensor):
        flat[""] = tree
    else:
        _collect(tree, "", flat)
    return flat


def _collect(tree: Mapping[str, Tree], prefix: str, flat: dict[str, Tensor]) -> None:
    for name, branch in tree.items():
        if not name or SEPARATOR in name:
            raise ValueError(f"a name in a tree must be non-empty and without '/', found {name!r}")
        if isinstance(branch, Tensor):  # most are: a call for each would cost more
            flat[prefix + name] = branch
        else:
            _collect(branch, prefix + name + SEPARATOR, flat)


def unflatten(flat: Mapping[str, Tensor]) -> Any:
    """The inverse of :func:`flatten` for trees without empty branches."""
    if set(flat) == {""}:
        return flat[""]
    tree: dict[str, Tree] = {}
    for path, tensor in flat.items():
        *parents, name = path.split(SEPARATOR)
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})  # type: ignore[assignment]
        branch[name] = tensor
    return tree


def as_branch(text: str) -> str:
    """Any text, such as a client's name, as a name in a tree: without the separator."""
    return quote(text, safe="")


def from_branch(name: str) -> str:
    """The inverse of :func:`as_branch`."""
    return unquote(name)


def zeros_like(tree: Tree) -> Any:
    zeros = tree_map(torch.empty_like, tree)
    if places := [*flatten(zeros).values()]:
        torch._foreach_zero_(places)  # all in one go
    return zeros


def clone(tree: Tree) -> Any:
    copies = iter(copies_of([*flatten(tree).values()]))
    return tree_map(lambda _: next(copies), tree)


def moved(tree: Tree, device: torch.device) -> Any:
    """The tree on another device; tensors that are there already are not copied.

    A GPU is not waited for: it reads pinned memory in its turn, which may be freed meanwhile but
    not written over.
    """
    to_gpu = device.type == "cuda"
    return tree_map(lambda leaf: leaf.to(device, non_blocking=to_gpu), tree)


def on_host(tree: Tree) -> Any:
    """The tree where and as the host reads it; a GPU is waited for once, not for every leaf."""
    copies = tree_map(lambda leaf: leaf.contiguous().to("cpu", non_blocking=True), tree)
    for device in {leaf.device for _, leaf in leaves(tree) if leaf.is_cuda}:
        torch.cuda.synchronize(device)
    return copies


def add(first: Tree, second: Tree, scale: float = 1.0) -> Any:
    """``first + scale * second``, in the dtype of ``first``."""

    def together(ones: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        sums = torch._foreach_add(ones, others, alpha=scale)
        return [total.to(one.dtype) for total, one in zip(sums, ones)]

    return map_together(together, first, second)


def sub(first: Tree, second: Tree) -> Any:
    return map_together(torch._foreach_sub, first, second)


def divided(tree: Tree, divisor: float) -> Any:
    places = flatten(tree)
    quotients = iter(torch._foreach_div([*places.values()], divisor) if places else ())
    return tree_map(lambda _: next(quotients), tree)


def without(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The branches but for these; for dropping what was needed during a round only."""
    return {name: branch for name, branch in tree.items() if name not in names}


def byte_count(tree: Tree) -> int:
    return sum(leaf.nbytes for leaf in flatten(tree).values())


def same_bits(first: Tree, second: Tree) -> bool:
    """Whether two trees hold the same names, shapes, dtypes and bits (NaN equals the same NaN)."""
    one, two = flatten(first), flatten(second)
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype
        and one[name].shape == two[name].shape
        and _raw(one[name]) == _raw(two[name])
        for name in one
    )


def _raw(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
