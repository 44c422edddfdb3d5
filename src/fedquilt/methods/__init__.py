"""The federated methods, one file each; ``METHODS`` maps their names to classes."""

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
    "fedcurv": "fedquilt.methods.fedcurv:FedCurv",
    "moon": "fedquilt.methods.moon:Moon",
    "fedrs": "fedquilt.methods.fedrs:FedRS",
    "fedpu": "fedquilt.methods.fedpu:FedPU",
    "fedlsr": "fedquilt.methods.fedlsr:FedLSR",
    "fednoro": "fedquilt.methods.fednoro:FedNoRo",
    "spherefed": "fedquilt.methods.spherefed:SphereFed",
    "fedvls": "fedquilt.methods.fedvls:FedVLS",
    "surgical-aggregation": "fedquilt.methods.surgical_aggregation:SurgicalAggregation",
    "flexible-fl": "fedquilt.methods.flexible_fl:FlexibleFL",
    "fedfixmatch": "fedquilt.methods.fedfixmatch:FedFixMatch",
    "fssl": "fedquilt.methods.fssl:FSSL",
    "rscfed": "fedquilt.methods.rscfed:RSCFed",
    "fedirm": "fedquilt.methods.fedirm:FedIRM",
    "cbafed": "fedquilt.methods.cbafed:CBAFed",
    "fpsl": "fedquilt.methods.fpsl:FPSL",
    "flag": "fedquilt.methods.flag:FLAG",
    "fedaws": "fedquilt.methods.fedaws:FedAwS",
    "fedalc": "fedquilt.methods.fedalc:FedALC",
    "quilt": "fedquilt.methods.quilt:Quilt",
    "fedmlp": "fedquilt.methods.fedmlp:FedMLP",
    "fedlsm": "fedquilt.methods.fedlsm:FedLSM",
    "fednca-ml": "fedquilt.methods.fednca_ml:FedNCAML",
    "fedc-tran": "fedquilt.methods.fedc_tran:FedCTran",
    "fedlgt": "fedquilt.methods.fedlgt:FedLGT",
    "scene-gcn": "fedquilt.methods.scene_gcn:SceneGCN",
    "site-aware": "fedquilt.methods.site_aware:SiteAware",
}


def all_methods() -> dict[str, str]:
    """Return ``METHODS`` and the ``fedquilt.methods`` entry points of installed packages."""
    outside = {entry.name: entry.value for entry in entry_points(group="fedquilt.methods")}
    return outside | METHODS
