"""dry_run(): trains one step and judges one batch at a site, without a connection."""

from __future__ import annotations

import math
import resource
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedquilt.core.payload import addressed
from fedquilt.core.tree import byte_count
from fedquilt.core.wording import counted
from fedquilt.deploy.audit_log import part_sizes
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.protocol.messages import pack, update_message
from fedquilt.deploy.site.data import load_site_data
from fedquilt.deploy.site.masked_update import round_vector
from fedquilt.deploy.site.settings import SiteSettings
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.models.network import read_weights
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.privacy.disclosure_report import server_of_one_site
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.transform import apply_transforms
from fedquilt.training.client import Workspace, run_client


@dataclass(frozen=True)
class DryRun:
    """What one step and one batch took here, and what the step would have sent."""

    device: str
    step_seconds: float
    steps: int  # of a round, about
    judged_images: int
    judge_seconds: float
    memory_mb: int  # the most that this process has held
    device_memory_mb: int | None  # of a GPU
    parts: dict[str, dict[str, Any]]  # kind, numbers and bytes
    message_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def lines(self) -> list[str]:
        minutes = self.steps * self.step_seconds / 60
        lines = [
            f"dry run on {self.device} with a new network in place of the server's, and no "
            "connection",
            f"one training step: {self.step_seconds:.2f} s; a round has about {self.steps:,} "
            f"steps, {minutes:.1f} minutes",
            f"judging a batch of {counted(self.judged_images, 'image')}: "
            f"{self.judge_seconds:.2f} s",
            f"peak memory: {self.memory_mb:,} MB",
        ]
        if self.device_memory_mb is not None:
            lines.append(f"peak memory of the GPU: {self.device_memory_mb:,} MB")
        parts = (f"{name} ({facts['bytes']:,} bytes)" for name, facts in self.parts.items())
        return [
            *lines,
            f"would be sent: {self.message_bytes:,} bytes, with the parts {', '.join(parts)}",
        ]


def dry_run(kit: Kit, settings: SiteSettings) -> DryRun:
    """Train a step of the first round as in the study; keep nothing and send nothing."""
    study, site = kit.study(), kit.role()
    data = load_site_data(study, site, settings)
    policy = settings.policy.tightened(SitePolicy(min_cell=study.recipe.min_cell))
    method, device = study.recipe.method, torch.device(settings.device)
    task = replace(study.task, model=study.task.model.for_loading())
    asked = DisclosureFloor(policy.min_cell).on_survey(
        method, data.training, method.survey(data.training)
    )
    received = addressed(method.broadcast(server_of_one_site(method, task, asked)), site)
    workspace = Workspace.of(task, device)
    short = replace(method, training=replace(method.training, steps=1))
    for _ in range(2):  # the first step also sets up the device
        began = time.perf_counter()
        update, kept = run_client(short, task, workspace, data.training, received, {}, 0)
        step_seconds = time.perf_counter() - began
    sent = apply_transforms((policy,), method, data.training, kept["method"], update)
    if study.is_secure:
        size = byte_count(round_vector(study, site, 0, received, sent))
    else:
        size = len(pack(update_message({}, sent)))
    judged = data.validation if len(data.validation) else data.training
    batch = judged.images[judged.indices[: workspace.prediction_batch]]
    began = time.perf_counter()
    predict_logits(
        workspace.forward,
        read_weights(workspace.training),
        batch,
        task,
        batch_size=len(batch),
        device=device,
    )
    judge_seconds = time.perf_counter() - began
    drawn = method.training.images_drawn(len(data.training))
    on_gpu = device.type == "cuda"
    return DryRun(
        device=settings.device,
        step_seconds=step_seconds,
        steps=math.ceil(drawn / method.training.batch_size),
        judged_images=len(batch),
        judge_seconds=judge_seconds,
        memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        device_memory_mb=torch.cuda.max_memory_allocated(device) // 2**20 if on_gpu else None,
        parts=part_sizes(sent),
        message_bytes=size,
    )
