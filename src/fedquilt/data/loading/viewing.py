"""Which augmentation a method's "weak" and "strong" view is, and how pixels are normalised."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.data.loading.views import Augmentation, View, find_view
from fedquilt.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Views:
    """What suits the images: a digit must not be mirrored, a skin lesion may be.

    Each is the name of a ready-made view (plain, flip, weak, strong, randaugment) or an own one.
    """

    weak: str | Augmentation = "weak"
    strong: str | Augmentation = "strong"

    def __post_init__(self) -> None:
        for chosen in (self.weak, self.strong):
            if isinstance(chosen, str):
                find_view(chosen)


@dataclass(frozen=True, kw_only=True)
class Viewing:
    """All that turns stored pixels into a network's input."""

    views: Views
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def view(self, name: str) -> View:
        """The view a method asks for by its role: weak, strong or plain."""
        if name == "plain":
            return find_view("plain")
        if name not in ("weak", "strong"):
            raise UserError(f"a method asked for the view {name!r}; there are weak, strong, plain")
        chosen: str | Augmentation = getattr(self.views, name)
        return find_view(chosen) if isinstance(chosen, str) else chosen
