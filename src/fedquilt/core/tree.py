"""Trees: nested dicts of tensors, the form of everything that is sent, stored or saved."""

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


def map_together(
    function: Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]], first: Tree, second: Tree
) -> Any:
    """Like :func:`tree_map`, but call ``function`` once with all leaves: one fused launch."""
    here, there = flatten(first), flatten(second)
    if here.keys() != there.keys():
        raise ValueError(f"trees differ: expected the names {sorted(here)}, found {sorted(there)}")
    made = iter(function([*here.values()], [there[path] for path in here]) if here else ())
    return tree_map(lambda _: next(made), first)


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
    zeros = tree_map(torch.empty_like, tree)
    if places := [*flatten(zeros).values()]:
        torch._foreach_zero_(places)  # one fused launch
    return zeros


def clone(tree: Tree) -> Any:
    copies = iter(copies_of([*flatten(tree).values()]))
    return tree_map(lambda _: next(copies), tree)


def moved(tree: Tree, device: torch.device) -> Any:
    """Return the tree on ``device``; tensors that are there already are not copied.

    Copies to a GPU are asynchronous: pinned source memory may be freed before they finish, but
    must not be overwritten.
    """
    to_gpu = device.type == "cuda"
    return tree_map(lambda leaf: leaf.to(device, non_blocking=to_gpu), tree)


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
    places = flatten(tree)
    quotients = iter(torch._foreach_div([*places.values()], divisor) if places else ())
    return tree_map(lambda _: next(quotients), tree)


def without(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the tree without these branches, e.g. those needed during a round only."""
    return {name: branch for name, branch in tree.items() if name not in names}


def byte_count(tree: Tree) -> int:
    return sum(leaf.nbytes for leaf in flatten(tree).values())


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
