"""Trees: nested dicts of tensors, the form of everything that is sent, stored or saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import torch
from torch import Tensor

from fedquilt.core.flat_tree import FlatTree, Signature

Tree: TypeAlias = "Tensor | Mapping[str, Tree]"
Weights: TypeAlias = dict[str, Tensor]

SEPARATOR = "/"


def tree_map(function: Callable[..., Tensor], tree: Tree, *others: Tree) -> Any:
    """Apply ``function`` leaf by leaf; all trees must have the same names.

    The result has the structure of ``tree``. Its type is Any because the caller knows it.
    """
    if isinstance(tree, Tensor):
        if any(isinstance(other, Mapping) for other in others):
            raise ValueError("trees differ: expected a tensor, found names")
        return function(tree, *others)
    for other in others:
        if not isinstance(other, Mapping) or other.keys() != tree.keys():
            found = sorted(other) if isinstance(other, Mapping) else "a tensor"
            raise ValueError(f"trees differ: expected the names {sorted(tree)}, found {found}")
    if not others:  # the common case, without a recursive call per leaf
        return {
            name: function(branch) if isinstance(branch, Tensor) else tree_map(function, branch)
            for name, branch in tree.items()
        }
    return {
        name: tree_map(function, branch, *(other[name] for other in others))  # type: ignore[index]
        for name, branch in tree.items()
    }


def map_together(function: Callable[..., Sequence[Tensor]], first: Tree, *others: Tree) -> Any:
    """Like :func:`tree_map`, but call ``function`` once, with a list of leaves for each tree.

    FlatTrees of one layout count as their few flat tensors.
    """
    trees = (first, *others)
    found = [_pieces(tree) for tree in trees]
    if all(each.keys() == found[0].keys() for each in found):
        return _rebuilt(first, iter(_called(function, found)))
    by_leaf = [flatten(tree) for tree in trees]
    for each in by_leaf:
        if each.keys() != by_leaf[0].keys():
            here, there = sorted(by_leaf[0]), sorted(each)
            raise ValueError(f"trees differ: expected the names {here}, found {there}")
    made = iter(_called(function, by_leaf))
    return tree_map(lambda _: next(made), first)


def _called(
    function: Callable[..., Sequence[Tensor]], found: Sequence[Mapping[Any, Tensor]]
) -> Sequence[Tensor]:
    return function(*([each[key] for key in found[0]] for each in found)) if found[0] else ()


def _pieces(tree: Tree, prefix: str = "") -> dict[Any, Tensor]:
    """Return the tensors that hold all numbers of a tree; equal keys mean equal places."""
    if isinstance(tree, Tensor):
        return {prefix: tree}
    if isinstance(tree, FlatTree):
        return {(prefix, tree.layout, number): flat for number, flat in enumerate(tree.flats)}
    found: dict[Any, Tensor] = {}
    for name, branch in tree.items():
        if isinstance(branch, Tensor):  # inline, because most branches are leaves
            found[prefix + name] = branch
        else:
            found |= _pieces(branch, prefix + name + SEPARATOR)
    return found


def _rebuilt(tree: Tree, made: Iterator[Tensor]) -> Any:
    """Return a tree of the same structure with the tensors of :func:`_pieces` replaced."""
    if isinstance(tree, Tensor):
        return next(made)
    if isinstance(tree, FlatTree):
        return tree.with_flats(next(made) for _ in tree.flats)
    return {
        name: next(made) if isinstance(branch, Tensor) else _rebuilt(branch, made)
        for name, branch in tree.items()
    }


def pieces(tree: Tree) -> list[Tensor]:
    """Return the tensors that hold all numbers of a tree; flat ones may hold zeros beside them."""
    return [*_pieces(tree).values()]


def signature(tree: Tree) -> Signature:
    """Return names, shapes and dtypes; trees with equal signatures can share memory."""
    return tuple(_signed(tree, ""))


def _signed(tree: Tree, prefix: str) -> Iterator[tuple[str, torch.Size, torch.dtype]]:
    if isinstance(tree, Tensor):
        yield prefix, tree.shape, tree.dtype
        return
    if isinstance(tree, FlatTree):
        yield from tree.signature(prefix)
        return
    for name, branch in tree.items():
        if isinstance(branch, Tensor):
            yield prefix + name, branch.shape, branch.dtype
        else:
            yield from _signed(branch, prefix + name + SEPARATOR)


def part_of(tree: Mapping[str, Tensor], names: Iterable[str]) -> Weights:
    """Return these tensors by name, flat if they are."""
    if isinstance(tree, FlatTree):
        return tree.part(names)
    return {name: tree[name] for name in names}


def write_all(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Overwrite tensors in place, with one fused launch for all of them."""
    if places:
        with torch.no_grad():
            torch._foreach_copy_(list(places), list(values))


def copies_of(values: Sequence[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Copy all tensors, optionally to another dtype, with one fused launch."""
    copies = [torch.empty_like(value, dtype=dtype, requires_grad=False) for value in values]
    write_all(copies, values)
    return copies


def leaves(tree: Tree) -> Iterator[tuple[str, Tensor]]:
    """Iterate over the ``(path, tensor)`` pairs of :func:`flatten`."""
    return iter(flatten(tree).items())


def flatten(tree: Tree) -> dict[str, Tensor]:
    """Join nested names to paths: ``{"a": {"b": x}}`` becomes ``{"a/b": x}``.

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
        if isinstance(branch, Tensor):  # inline, because most branches are leaves
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
    """Encode any text, such as a client's name, as a name without the separator."""
    return quote(text, safe="")


def from_branch(name: str) -> str:
    """The inverse of :func:`as_branch`."""
    return unquote(name)


def zeros_like(tree: Tree) -> Any:
    def zeros(like: list[Tensor]) -> list[Tensor]:
        places = [torch.empty_like(leaf) for leaf in like]
        torch._foreach_zero_(places)  # one fused launch
        return places

    return map_together(zeros, tree)


def clone(tree: Tree) -> Any:
    return map_together(copies_of, tree)


def moved(tree: Tree, device: torch.device) -> Any:
    """Return the tree on ``device``; tensors that are there already are not copied.

    Copies to a GPU are asynchronous: pinned source memory may be freed before they finish, but
    must not be overwritten.
    """
    to_gpu = device.type == "cuda"
    return map_together(
        lambda found: [each.to(device, non_blocking=to_gpu) for each in found], tree
    )


def on_host(tree: Tree) -> Any:
    """Return the tree as contiguous host tensors; synchronise once per GPU, not per leaf."""
    copies = tree_map(lambda leaf: leaf.contiguous().to("cpu", non_blocking=True), tree)
    for device in {leaf.device for _, leaf in leaves(tree) if leaf.is_cuda}:
        torch.cuda.synchronize(device)
    return copies


def add(first: Tree, second: Tree, scale: float = 1.0) -> Any:
    """Return ``first + scale * second``, in the dtype of ``first``."""

    def together(ones: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        sums = torch._foreach_add(ones, others, alpha=scale)
        return [total.to(one.dtype) for total, one in zip(sums, ones)]

    return map_together(together, first, second)


def sub(first: Tree, second: Tree) -> Any:
    return map_together(torch._foreach_sub, first, second)


def divided(tree: Tree, divisor: float) -> Any:
    return map_together(lambda places: torch._foreach_div(places, divisor), tree)


def without(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the tree without these branches, e.g. those needed during a round only."""
    return {name: branch for name, branch in tree.items() if name not in names}


def byte_count(tree: Tree) -> int:
    if isinstance(tree, FlatTree):
        return tree.byte_count()
    if isinstance(tree, Tensor):
        return tree.nbytes
    return sum(byte_count(branch) for branch in tree.values())


def same_bits(first: Tree, second: Tree) -> bool:
    """Return whether names, shapes, dtypes and bits are equal (NaN equals the same NaN)."""
    one, two = flatten(first), flatten(second)
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype
        and one[name].shape == two[name].shape
        and _raw(one[name]) == _raw(two[name])
        for name in one
    )


def _raw(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
