"""What every row of every table on the papers' data must have, written by hand from the notes.

``papers_settings.py`` lists some rows in more detail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from support.papers_settings import FEDLGT, FEDMLP, FEDNCA, PRETRAINED, STAGES, USERS

Settings = Mapping[str, Any]


def method(name: str, **settings: Any) -> dict[str, Any]:
    return {"method.name": name} | {f"method.{key}": value for key, value in settings.items()}


ADJUSTED = {"distillation": 0.8, "ramp_start": 10, "ramp_end": 499, "teacher_temperature": 0.8}
FEDIRM = {"warmup_rounds": 20, "ramp_rounds": 30, "entropy_limit": 2.0, "teacher_decay": 0.99}
REPAIRED = {"warmup_rounds": 50, "negative_share": 0.005, "positive_share": 0.01}
FEDMLP_ROWS: dict[str, Settings] = {
    "fedavg": method("fedavg", unannotated="negative", positive_weight="inverse-prevalence"),
    "fedavg-pl": method("fedavg-pl", unannotated="skip", positive_weight="inverse-prevalence"),
    "rscfed": method("rscfed"),
    "fedfixmatch": method("fedfixmatch", threshold=0.8),
    "fedirm": method("fedirm", **FEDIRM, teacher_mode="evaluation"),
    "cbafed": method("cbafed", threshold_base=0.6, warmup_rounds=50),
    "fedlsr": method("fedlsr", self_distillation=0.4, ramp_rounds=40, double_sigmoid=False),
    "fednoro": method("fednoro", **ADJUSTED, logit_adjustment=True),
    "fednoro-ported": method("fednoro", **ADJUSTED, logit_adjustment=False),
    "fedmlp": {"method.name": "fedmlp", **STAGES, "method.missing_prior": "client"},
    "fedirm-released": method("fedirm", **FEDIRM, teacher_mode="training", matrix="batches"),
    "fedlsr-ported": method("fedlsr", ramp_rounds=40, double_sigmoid=True, both_sides=False),
    "fedmlp-repaired": method(
        "fedmlp",
        **REPAIRED,
        normaliser="supervised",
        prototype_weights="counts",
        difficulty_on="missing",
        missing_prior="tagged",
    ),
    "fedmlp-released": method(
        "fedmlp", **REPAIRED, logit_adjustment=False, consistency=False, feature_view="weak"
    ),
}
PARTS = ("detection", "logit_adjustment", "consistency", "adaptive_threshold")


def ablated(*on: str, unannotated: str = "skip") -> Settings:
    switches = {part: part in on for part in PARTS}
    return STAGES | method("fedmlp", **switches, unannotated=unannotated)


FEDMLP_ABLATION: dict[str, Settings] = {
    "fedavg": FEDMLP_ROWS["fedavg"],
    "mld": ablated("detection", unannotated="negative"),
    "wpc": ablated("detection", "logit_adjustment"),
    "cr": ablated("detection", "logit_adjustment", "consistency"),
    "st": ablated(*PARTS),
}

LSM_TRAINING = {
    "rounds": 50,
    "method.training.optimizer": "adam",
    "method.training.lr": 1e-4,
    "method.training.betas": [0.9, 0.99],
    "method.training.weight_decay": 5e-4,
    "method.training.batch_size": 64,
    "method.training.keep_optimizer": True,
    "model.backbone": "densenet121.tv_in1k",
    "annotation.identified": 3,
    "annotation.published": True,
    "validation.share": 0.125,
    "validation.metric": "site_auc",
}
CHEST = {
    **LSM_TRAINING,
    "partition.clients": 8,
    "data.size": 320,
    "method.training.steps": 200,
    "method.positive_weight": "odds",
    "method.positive_weight_from": "population",
    "evaluation.exclusive": False,
}
SKIN = {
    **LSM_TRAINING,
    "partition.clients": 5,
    "data.size": 224,
    "method.training.steps": 30,
    "method.positive_weight": "none",
    "evaluation.exclusive": True,
}
STAR, PLAIN = {"head_rows": "annotated"}, {"head_rows": "all"}
OWN_LSM = {"mixing_strength": 0.1, "mixed_images": 4, "entropy": "binary", "draw_counts": True}


def baselines(threshold: float, **form: Any) -> dict[str, Settings]:
    """A star is the averaging of head rows over annotators, and nothing else."""
    return {
        "full-labels": method("full-labels", **PLAIN, **form),
        "fedavg": method("fedavg", unannotated="negative", **PLAIN, **form),
        "fedavg-star": method("fedavg", unannotated="negative", **STAR, **form),
        "fedprox-star": method("fedprox", mu=0.01, **STAR, **form),
        "moon-star": method("moon", mu=1.0, **STAR, **form),
        "fedrs": method("fedrs", alpha=0.5, **PLAIN, **form),
        "fpsl": method("fpsl", **STAR, **form),
        "fixmatch-star": method("fedfixmatch", gate="entry", threshold=threshold, **STAR, **form),
        "fssl-star": method("fssl", **STAR, **form),
    }


def lsm_ablation(**own: Any) -> dict[str, Settings]:
    return {
        "without-awpa": method("fedlsm", **OWN_LSM | {"draw_counts": False}, **own),
        "without-ude": method("fedlsm", **OWN_LSM | {"mixing_strength": 0.0}, **own),
        "without-ue": method("fedlsm", **OWN_LSM | {"entropy": "random"}, **own),
        "fedlsm": method("fedlsm", **OWN_LSM, **own),
    }


ON_CHEST = {
    "labels": "multi",
    "thresholds": [0.01, 0.85],
    "uncertain_images": 500,
    "certain_images": 2000,
}
ON_SKIN = {
    "labels": "single",
    "thresholds": [0.01, 0.95],
    "uncertain_images": 50,
    "certain_images": 200,
}
LSM_TABLE1 = baselines(0.85) | {
    "fedlsm": method("fedlsm", **OWN_LSM, **ON_CHEST),
    "fedlsm-annotators": method("fedlsm", **OWN_LSM | {"draw_counts": False}, **ON_CHEST),
    "fedlsm-released": method("fedlsm", **ON_CHEST, entropy="one_sided", weighed="mean"),
}
LSM_TABLE2 = baselines(0.95, one_class_per_image=True) | {
    "fedpu": method("fedpu", risk="softmax", weighting="uniform", head_rows="all"),
    "fedlsm": method("fedlsm", **OWN_LSM, **ON_SKIN),
    "fedlsm-annotators": method("fedlsm", **OWN_LSM | {"draw_counts": False}, **ON_SKIN),
}


def without(settings: Settings, *prefixes: str) -> dict[str, Any]:
    return {key: each for key, each in settings.items() if not key.startswith(prefixes)}


NCA = without(FEDNCA, "partition.concentration", "partition.presence") | {
    "validation.metric": "site_auc",
    "method.positive_weight": "none",
}
OWN_HEAD, HIDDEN = {"model.head": "linear"}, {"model.head": "hidden-layer"}


def nca_rows(rejection: float) -> dict[str, Settings]:
    return {
        "centralised": method("centralised") | {"method.training.keep_optimizer": True} | HIDDEN,
        "fedavg": method("fedavg") | HIDDEN,
        "fedcurv": method("fedcurv", strength=0.1) | HIDDEN,
        "fedprox": method("fedprox", mu=0.01) | HIDDEN,
        "scaffold": method("scaffold") | HIDDEN,
        "spherefed": method("spherefed") | OWN_HEAD,
        "fedlgt": method("fedlgt", threshold=0.5, margin=0.02) | OWN_HEAD,
        "fednca-ml": nca(rejection, 1.0),
        "fednca-ml-released": method(
            "fednca-ml",
            rejection=rejection,
            train_query=True,
            train_classifier=True,
            position_code=False,
            rejection_form="hinge-top",
            compaction_form="cosine",
        ),
    }


def nca(rejection: float, compaction: float, **settings: Any) -> Settings:
    form = {"head": "ladm", "query": "etf", "train_query": False, "train_classifier": False}
    strengths = {"rejection": rejection, "compaction": compaction}
    return method("fednca-ml", **form | strengths | settings)


def nca_components(rejection: float) -> dict[str, Settings]:
    return {
        "fc": method("fednca-ml", head="linear", rejection=0.0, compaction=0.0),
        "etf": method("fednca-ml", head="etf", rejection=0.0, compaction=0.0),
        "ladm": nca(0.0, 0.0),
        "neg": nca(rejection, 0.0),
        "pos": nca(0.0, 1.0),
        "all": nca(rejection, 1.0),
    }


NCA_QUERIES: dict[str, Settings] = {
    "learnable-random": nca(0.0, 0.0, query="random", train_query=True),
    "learnable-etf": nca(0.0, 0.0, train_query=True),
    "fixed-etf": nca(0.0, 0.0),
}
COLOURS = without(PRETRAINED, "method.")
SCRATCH = {"model.backbone": "resnet18", "model.weights": "random"}

LGT = without(FEDLGT, "method.text", "method.threshold", "method.margin")
TRANSFORMER = {"layers": 3, "attention_heads": 4, "dropout": 0.1, "told_share": 0.75}
CLIP = {"text_encoder": "open-clip:ViT-B-16/openai"}
CALIBRATED = {"calibrate": True, "threshold": 0.5, "margin": 0.02}


def lgt_rows(**text: Any) -> dict[str, Settings]:
    return {
        "fedavg": method("fedavg"),
        "fedc-tran": method("fedc-tran", **TRANSFORMER),
        "fedlgt": method("fedlgt", **TRANSFORMER, **CALIBRATED, **CLIP, **text),
        "fedlgt-released": method(
            "fedlgt", **CALIBRATED, **CLIP, **text, first_sample_only=True, swapped_states=True
        ),
    }


POOLED = {"method.training.keep_optimizer": True}
LGT_BOUNDS: dict[str, Settings] = {
    "centralised": method("centralised") | POOLED,
    "centralised-c-tran": method("fedc-tran", **TRANSFORMER)
    | POOLED
    | {"partition.name": "iid", "partition.clients": 1, "cohort_size": 1},
}
JOINED = {"join": "concat", "prompt": "The photo contains {name}."}
AVERAGED = {"join": "average", "prompt": "The photo contains {name}"}
AVERAGE_ROW = method("fedlgt", **CALIBRATED, **CLIP, **AVERAGED)
LGT_ABLATION: dict[str, Settings] = {
    "fedc-tran": method("fedc-tran", **TRANSFORMER),
    "ca-mle": method("fedlgt", **CALIBRATED, text_encoder="learned"),
    "ule": method("fedlgt", **CLIP, **JOINED, calibrate=False),
    "fedlgt": method("fedlgt", **CALIBRATED, **CLIP, **JOINED),
}
ICH = FEDMLP | {"partition.clients": 5, "data.name": "rsna-ich", "data.healthy": 87948}
PA = FEDMLP | {"partition.clients": 8, "data.view": "PA", "data.classes": "top8"}
EVEN = LGT | {"partition.name": "iid", "partition.clients": 20}

# (table, data) -> what all its rows have, and what each row has besides or instead
ROWS: dict[tuple[str, str], tuple[Settings, Mapping[str, Settings]]] = {
    ("fedmlp/table1", "ich"): (ICH, FEDMLP_ROWS),
    ("fedmlp/table2", "chestxray14"): (PA, FEDMLP_ROWS),
    ("fedmlp/table3", "ich"): (ICH | {"annotation.missing": 4}, FEDMLP_ABLATION),
    ("fedmlp/table3", "chestxray14"): (PA | {"annotation.missing": 7}, FEDMLP_ABLATION),
    ("fedlsm/table1", "chestxray14"): (CHEST, LSM_TABLE1),
    ("fedlsm/table2", "ham10000"): (SKIN, LSM_TABLE2),
    ("fedlsm/table3", "chestxray14"): (CHEST, lsm_ablation(**ON_CHEST)),
    ("fedlsm/table3", "ham10000"): (SKIN, lsm_ablation(**ON_SKIN)),
    ("fednca-ml/table1", "cifar10-224"): (NCA | SCRATCH, nca_rows(1.0)),
    ("fednca-ml/table2", "dermamnist"): (NCA | COLOURS, nca_rows(0.01)),
    ("fednca-ml/table3", "pascal-voc"): (NCA | COLOURS, nca_rows(0.01)),
    ("fednca-ml/table4", "chestxray14"): (NCA | COLOURS, nca_rows(0.01)),
    ("fednca-ml/table5", "dermamnist"): (NCA | COLOURS, nca_components(0.01)),
    ("fednca-ml/table6", "dermamnist"): (NCA | COLOURS, NCA_QUERIES),
    ("fednca-ml/table7", "cifar10-224"): (NCA | SCRATCH, nca_components(1.0)),
    ("fednca-ml/table8", "cifar10-224"): (NCA | SCRATCH, NCA_QUERIES),
    ("fedlgt/table1", "flair"): (
        LGT | USERS,
        LGT_BOUNDS | lgt_rows(**JOINED) | {"fedlgt-average": AVERAGE_ROW},
    ),
    ("fedlgt/table2", "flair-fine"): (LGT | USERS, LGT_BOUNDS | lgt_rows()),
    ("fedlgt/table3", "ms-coco"): (EVEN, lgt_rows()),
    ("fedlgt/table3", "pascal-voc"): (EVEN, lgt_rows()),
    ("fedlgt/table4", "flair"): (LGT | USERS, LGT_ABLATION),
}
COLUMNS: dict[str, dict[str, Any]] = {  # what a column changes
    "fednca-ml/table3": {"beta-0.05": 0.05, "beta-0.01": 0.01},
    "fednca-ml": {"beta-0.5": 0.5, "beta-0.1": 0.1},
    "fedmlp": {f"missing-{count}": count for count in (1, 2, 3, 4, 5, 7)},
    "fedlsm": {"identified-3": 3},
    "fedlgt": {"all": None},
}
PLACES = {"fednca-ml": "partition.concentration", "fedmlp": "annotation.missing"}


def expected(table: str, data: str, row: str, column: str) -> dict[str, Any]:
    shared, rows = ROWS[table, data]
    paper = table.partition("/")[0]
    value = COLUMNS.get(table, COLUMNS[paper])[column]
    place = {PLACES[paper]: value} if paper in PLACES else {}
    return {**shared, **place, **rows[row]}


def every_cell() -> Iterator[tuple[str, str, str]]:
    yield from ((table, data, row) for (table, data), (_, rows) in ROWS.items() for row in rows)
