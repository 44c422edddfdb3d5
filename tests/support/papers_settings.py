"""What the papers say of their experiments, written by hand from the notes on them."""

from __future__ import annotations

from typing import Any

ADAM_3E5 = {
    "method.training.optimizer": "adam",
    "method.training.lr": 3e-5,
    "method.training.weight_decay": 5e-4,
    "method.training.decay": "coupled",
    "method.training.batch_size": 32,
    "method.training.epochs": 1,
    "method.training.keep_optimizer": False,
}
FEDMLP = {
    **ADAM_3E5,
    "rounds": 500,
    "model.backbone": "resnet18.tv_in1k",
    "model.weights": "timm",
    "model.mean": [0.485, 0.456, 0.406],
    "model.std": [0.229, 0.224, 0.225],
    "data.size": 224,
    "data.split": "image",
    "partition.name": "iid",
    "annotation.name": "missing",
    "evaluation.threshold": 0.5,
    "evaluation.strict": True,
    "validation.share": 0.0,  # the last round is reported
}
STAGES = {
    "method.warmup_rounds": 50,
    "method.negative_share": 0.005,
    "method.positive_share": 0.01,
    "method.low": 0.3,
    "method.high": 0.7,
    "method.normaliser": "classes",
    "method.prototype_weights": "clients",
    "method.difficulty_on": "active",
}
FEDLSM = {
    "rounds": 50,
    "method.training.optimizer": "adam",
    "method.training.lr": 1e-4,
    "method.training.betas": [0.9, 0.99],
    "method.training.weight_decay": 5e-4,
    "method.training.batch_size": 64,
    "method.training.keep_optimizer": True,
    "model.backbone": "densenet121.tv_in1k",
    "model.weights": "timm",
    "partition.name": "iid",
    "annotation.identified": 3,
    "annotation.published": True,
    "validation.share": 0.125,  # the best validation checkpoint is reported
    "validation.metric": "site_auc",
    "evaluation.every": 1,
    "method.mixed_images": 4,
    "method.mixing_strength": 0.1,
    "method.mixing_concentration": 0.2,
    "method.teacher_decay": 0.999,
    "method.uncertain_thresholds": [0.005, 0.7],
}
FEDNCA = {
    "rounds": 100,
    "allocation_seed": 0,  # partitions are the same for all seeds
    "partition.name": "dirichlet-presence",
    "partition.clients": 10,
    "partition.concentration": 0.5,
    "partition.presence_share": 0.5,
    "annotation.name": "full",
    "method.weighting": "uniform",
    "method.training.optimizer": "adam",
    "method.training.decay": "decoupled",
    "method.training.lr": 1e-4,
    "method.training.betas": [0.9, 0.98],
    "method.training.weight_decay": 0.01,
    "method.training.batch_size": 32,
    "method.training.epochs": 1,
    "views.weak": "plain",
    "data.size": 224,
    "evaluation.every": 1,
    "evaluation.strict": True,
}
OWN_NCA = {
    "method.head": "ladm",
    "method.query": "etf",
    "method.train_query": False,
    "method.train_classifier": False,
    "method.rejection_threshold": 0.3,
    "method.compaction": 1.0,
}
PRETRAINED = {
    "model.backbone": "resnet18.tv_in1k",
    "model.weights": "timm",
    "model.mean": [0.485, 0.456, 0.406],
    "model.std": [0.229, 0.224, 0.225],
    "method.rejection": 0.01,
}
SCRATCH = {"model.backbone": "resnet18", "model.weights": "random", "method.rejection": 1.0}
FEDLGT = {
    "rounds": 50,
    "method.training.optimizer": "adam",
    "method.training.lr": 1e-4,
    "method.training.weight_decay": 0.0,
    "method.training.batch_size": 16,
    "method.training.epochs": 5,
    "method.training.clip_norm": 10.0,
    "model.backbone": "resnet18.tv_in1k",
    "data.size": 256,
    "views.weak": "flip",
    "evaluation.threshold": 0.5,
    "evaluation.strict": False,  # from 0.5 on
    "method.text_encoder": "open-clip:ViT-B-16/openai",
    "method.threshold": 0.5,
    "method.margin": 0.02,
}
USERS = {"partition.name": "natural", "cohort_size": 50, "data.name": "flair"}
# (table, data, row, column) -> settings
EXPERIMENTS: dict[tuple[str, str, str, str], dict[str, Any]] = {
    ("fedmlp/table1", "ich", "fedmlp", "missing-1"): {
        **FEDMLP,
        **STAGES,
        "partition.clients": 5,
        "annotation.missing": 1,
        "data.healthy": 87948,
        "data.stage": 1,
    },
    ("fedmlp/table1", "ich", "fedavg", "missing-4"): {
        **FEDMLP,
        "annotation.missing": 4,
        "annotation.one_to_one": True,
        "method.unannotated": "negative",
    },
    ("fedmlp/table1", "ich", "rscfed", "missing-2"): {
        "method.group_size": 3,
        "method.group_count": 3,
    },
    ("fedmlp/table2", "chestxray14", "rscfed", "missing-3"): {
        "method.group_size": 6,
        "method.group_count": 10,
    },
    ("fedmlp/table2", "chestxray14", "fedfixmatch", "missing-3"): {"method.threshold": 0.8},
    ("fedmlp/table2", "chestxray14", "fedirm", "missing-3"): {
        "method.warmup_rounds": 20,
        "method.ramp_rounds": 30,
        "method.entropy_limit": 2.0,
        "method.teacher_decay": 0.99,
    },
    ("fedmlp/table2", "chestxray14", "cbafed", "missing-3"): {
        "method.threshold_base": 0.6,
        "method.warmup_rounds": 50,
    },
    ("fedmlp/table2", "chestxray14", "fedlsr", "missing-3"): {
        "method.self_distillation": 0.4,
        "method.ramp_rounds": 40,
    },
    ("fedmlp/table2", "chestxray14", "fednoro", "missing-3"): {
        "method.distillation": 0.8,
        "method.ramp_start": 10,
        "method.ramp_end": 499,
    },
    ("fedmlp/table2", "chestxray14", "fedmlp", "missing-7"): {
        **FEDMLP,
        **STAGES,
        "partition.clients": 8,
        "data.view": "PA",
        "data.classes": "top8",
        "data.test_share": 0.3,
        "annotation.one_to_one": True,
    },
    ("fedmlp/table3", "chestxray14", "mld", "missing-7"): {
        **FEDMLP,
        "method.detection": True,
        "method.unannotated": "negative",
        "method.logit_adjustment": False,
        "method.consistency": False,
        "method.adaptive_threshold": False,
    },
    ("fedlsm/table1", "chestxray14", "fedlsm", "identified-3"): {
        **FEDLSM,
        "partition.clients": 8,
        "data.size": 320,
        "data.split": "official",
        "model.mean": [0.506],
        "model.std": [0.252],
        "method.training.steps": 200,
        "method.thresholds": [0.01, 0.85],
        "method.uncertain_images": 500,
        "method.certain_images": 2000,
        "method.positive_weight": "odds",
    },
    ("fedlsm/table1", "chestxray14", "fedlsm-released", "identified-3"): {
        "method.entropy": "one_sided",
        "method.weighed": "mean",
    },
    ("fedlsm/table2", "ham10000", "fedlsm", "identified-3"): {
        **FEDLSM,
        "partition.clients": 5,
        "data.size": 224,
        "data.test_share": 0.2,
        "model.mean": [0.763, 0.546, 0.570],
        "model.std": [0.141, 0.153, 0.170],
        "method.training.steps": 30,
        "method.labels": "single",
        "method.thresholds": [0.01, 0.95],
        "method.uncertain_images": 50,
        "method.certain_images": 200,
        "method.positive_weight": "none",
        "evaluation.exclusive": True,
    },
    ("fedlsm/table2", "ham10000", "fixmatch-star", "identified-3"): {
        "method.one_class_per_image": True,
        "method.threshold": 0.95,
        "method.head_rows": "annotated",
        "method.positive_weight": "none",
    },
    ("fedlsm/table3", "chestxray14", "without-ue", "identified-3"): {"method.entropy": "random"},
    ("fednca-ml/table1", "cifar10-224", "fednca-ml", "beta-0.5"): {
        **FEDNCA,
        **OWN_NCA,
        **SCRATCH,
        "data.singles": 3100,
        "data.pairs": 200,
    },
    ("fednca-ml/table1", "cifar10-224", "fedcurv", "beta-0.1"): {
        "method.strength": 0.1,
        "model.head": "hidden-layer",
        "partition.concentration": 0.1,
    },
    ("fednca-ml/table1", "cifar10-224", "fedprox", "beta-0.1"): {"method.mu": 0.01},
    ("fednca-ml/table2", "dermamnist", "fednca-ml", "beta-0.5"): {
        **FEDNCA,
        **OWN_NCA,
        **PRETRAINED,
        "partition.presence_share": 0.71,
        "data.pairs": 50,
        "validation.share": 0.125,
    },
    ("fednca-ml/table3", "pascal-voc", "fednca-ml", "beta-0.01"): {
        **FEDNCA,
        **PRETRAINED,
        "partition.concentration": 0.01,
        "data.year": 2012,
    },
    ("fednca-ml/table4", "chestxray14", "fednca-ml", "beta-0.5"): {**FEDNCA, **PRETRAINED},
    ("fednca-ml/table5", "dermamnist", "etf", "beta-0.1"): {
        "method.head": "etf",
        "method.rejection": 0.0,
        "method.compaction": 0.0,
        "partition.concentration": 0.1,
    },
    ("fednca-ml/table6", "dermamnist", "learnable-random", "beta-0.1"): {
        "method.query": "random",
        "method.train_query": True,
    },
    ("fednca-ml/table7", "cifar10-224", "neg", "beta-0.5"): {
        "method.rejection": 1.0,
        "method.compaction": 0.0,
    },
    ("fednca-ml/table8", "cifar10-224", "fixed-etf", "beta-0.5"): {
        "method.query": "etf",
        "method.train_query": False,
    },
    ("fedlgt/table1", "flair", "fedlgt", "all"): {**FEDLGT, **USERS, "data.grain": "coarse"},
    ("fedlgt/table1", "flair", "fedlgt-average", "all"): {
        "method.join": "average",
        "method.prompt": "The photo contains {name}",
    },
    ("fedlgt/table2", "flair-fine", "fedlgt", "all"): {**FEDLGT, **USERS, "data.grain": "fine"},
    ("fedlgt/table3", "ms-coco", "fedlgt", "all"): {
        **FEDLGT,
        "partition.name": "iid",
        "partition.clients": 20,
    },
    ("fedlgt/table3", "pascal-voc", "fedlgt", "all"): {**FEDLGT, "data.year": 2007},
    ("fedlgt/table4", "flair", "ule", "all"): {**USERS, "method.calibrate": False},
}
