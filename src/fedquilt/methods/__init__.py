"""The federated methods, one file each: ``METHODS`` is the one table of their names."""

from __future__ import annotations

from importlib.metadata import entry_points

METHODS = {
    "centralised": "fedquilt.methods.centralised:Centralised",
    "full-labels": "fedquilt.methods.full_labels:FullLabels",
    "local-only": "fedquilt.methods.local_only:LocalOnly",
    "fedavg": "fedquilt.methods.fedavg:FedAvg",
    "fedavg-pl": "fedquilt.methods.fedavg_pl:FedAvgPL",
    "fedprox": "fedquilt.methods.fedprox:FedProx",
    "scaffold": "fedquilt.methods.scaffold:Scaffold",
    "fedmlp": "fedquilt.methods.fedmlp:FedMLP",
}


def all_methods() -> dict[str, str]:
    """``METHODS`` and what other installed packages offer under ``fedquilt.methods``."""
    outside = {entry.name: entry.value for entry in entry_points(group="fedquilt.methods")}
    return outside | METHODS
