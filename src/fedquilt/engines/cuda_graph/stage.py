"""CapturedStage: one stage of a client's round; batches come in chunks, steps from CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fedquilt.core.flat_tree import Signature
from fedquilt.core.tree import clone, signature
from fedquilt.data.batches import Batch, Pool, row_batches
from fedquilt.engines.cuda_graph.batch_chunk import (
    Chunk,
    Segment,
    chunk_bytes,
    chunk_steps,
    load_chunk,
    segments,
)
from fedquilt.engines.cuda_graph.device_memory import fill
from fedquilt.engines.cuda_graph.graph_step import (
    CaptureError,
    GraphStep,
    StepLocal,
    no_kernel_search,
)
from fedquilt.engines.cuda_graph.slot import CapturedStep, Slot
from fedquilt.training.client_step import (
    observe_batch,
    pool_generator,
    stage_optimizer,
    step_count,
    take_step,
    trained_parameters,
)
from fedquilt.training.local_optimizer import LocalOptimizer
from fedquilt.training.method import Local, Method, Stage, State
from fedquilt.training.task import Task


class CapturedStage:
    """Same random draws, hooks and order as ``training.client.run_client``.

    All of it is queued on the current stream, which must be the slot's.
    """

    def __init__(self, slot: Slot, method: Method, task: Task, local: Local, stage: Stage) -> None:
        self._slot, self._method, self._task = slot, method, task
        self._local, self._stage = local, stage
        self._network = slot.workspace.training
        self._pools = method.pools(local)
        self.step_count = step_count(method, stage, self._pools[0], len(local.data))
        most_bytes = chunk_bytes(slot.workspace.device)
        self._most_steps = chunk_steps(self._pools, task.image_shape, most_bytes)
        self._lr = method.training.lr_at(local.round_index, task.round_count)
        self._annotated = local.data.known.any(0)

    def begin(self, memory: State, received: Signature) -> None:
        """Load the client's state and optimizer memory into the slot's buffers."""
        self._memory, self._received = memory, received
        loaded = self._slot.buffers.load(f"state in {self._stage.name}", self._local.state)
        self._state, self._state_signature = loaded.tree, loaded.signature
        self._optimizer = self._fresh_optimizer() if self._stage.trains else None
        # On the slot's stream: pools may depend on values that are still being computed there.
        # Copied to the device now: a copy between two chunks would wait for the steps before it.
        device = self._slot.workspace.device
        self._plan = [segment.to(device) for segment in self._segments()]

    def steps(self) -> Iterator[None]:
        """Run the stage; yield after every step, so that other clients' steps can be queued."""
        device = self._slot.workspace.device
        preprocessing, data = self._task.preprocessing, self._local.data
        generators = [self._augmentation(index) for index in range(len(self._pools))]
        for segment in self._plan:
            captured, is_new = self._captured_step(segment)
            load_chunk(
                captured.chunk, segment, data, self._pools, preprocessing, generators, device
            )
            if is_new:
                captured = self._capture(captured, segment)
            for _ in range(segment.steps):
                captured.step.replay()
                yield

    def end(self) -> tuple[State, State]:
        """Return the client's state and the optimizer's memory."""
        memory: State = {}
        if self._optimizer is not None and self._method.training.keep_optimizer:
            memory = dict(self._optimizer.state())
        return clone(self._state), memory

    def _segments(self) -> Iterator[Segment]:
        orders = [
            row_batches(
                pool,
                len(self._local.data),
                self.step_count,
                pool_generator(self._task, self._local, "order", index),
                self._local.data.indices.device,
            )
            for index, pool in enumerate(self._pools)
        ]
        rows = list(zip(*orders))
        classes, generator = self._task.class_count, self._local.generator
        drawn = [self._method.sample_noise(len(each[0]), classes, generator) for each in rows]
        return segments(rows, drawn, self._most_steps)

    def _augmentation(self, index: int) -> torch.Generator:
        """Return the sequential engine's generator, or a faster one on the device with its seed."""
        reference = pool_generator(self._task, self._local, "augmentation", index)
        if not self._slot.draws_on_device:
            return reference
        return torch.Generator(self._slot.workspace.device).manual_seed(reference.initial_seed())

    def _fresh_optimizer(self) -> LocalOptimizer:
        """Return the slot's optimizer for this stage, reset to its initial state."""
        optimizers = self._slot.optimizers
        if self._stage in optimizers:
            optimizers[self._stage].restart(self._lr, self._annotated, self._memory)
        else:
            parameters = trained_parameters(self._network, self._stage)
            optimizers[self._stage] = stage_optimizer(
                self._method, self._task, self._local, parameters, capturable=True
            )
        return optimizers[self._stage]

    def _captured_step(self, segment: Segment) -> tuple[CapturedStep, bool]:
        """Return the step for batches of this shape, and whether it is new and not yet captured."""
        slot, local = self._slot, self._local
        drawn = None if segment.drawn is None else tuple(segment.drawn.shape[1:])
        # There may be tail batches of every size, so each chunk is no longer than needed.
        length = segment.steps if self._is_tail(segment) else self._most_steps
        kind = (segment.shape, length, tuple(pool.views for pool in self._pools), drawn)
        key = (self._stage, kind, self._state_signature, self._received)
        if key in slot.captured_steps:
            return slot.captured_steps[key], False
        device, is_last = slot.workspace.device, slot.channels_last
        chunk = Chunk(self._like(segment), length, device, channels_last=is_last)
        if slot.capture_failure is not None:  # the step reads this client's Local: do not keep it
            return CapturedStep(self._step(local, chunk, segment), chunk), True
        step = self._step(StepLocal.of(local), chunk, segment)
        slot.captured_steps[key] = CapturedStep(step, chunk)
        return slot.captured_steps[key], True

    def _is_tail(self, segment: Segment) -> bool:
        """Whether it is a tail batch: the smaller last batch of an epoch."""
        return segment.shape != tuple(pool.batch_size for pool in self._pools)

    def _step(self, local: Local, chunk: Chunk, segment: Segment) -> GraphStep:
        method, buffers, optimizer = self._method, self._state, self._optimizer
        loss_sum, parameters = self._slot.loss, trained_parameters(self._network, self._stage)
        live = {name: parameter.detach() for name, parameter in parameters.items()}

        def step() -> None:
            local.state = buffers
            if optimizer is None:
                observe_batch(method, local, chunk.batch())
            else:
                loss_sum.add_(take_step(method, local, chunk.batch(), parameters, live, optimizer))
            if signature(local.state) != signature(buffers):
                raise CaptureError("the client's state changes its shape within a stage")
            fill(buffers, local.state)
            chunk.next.add_(1)

        # Tail batches have many sizes, each used once an epoch: not worth a kernel search.
        return GraphStep(no_kernel_search()(step) if self._is_tail(segment) else step)

    def _capture(self, captured: CapturedStep, segment: Segment) -> CapturedStep:
        """Run a new step as a warm-up, undo it, and capture it.

        A step that cannot be captured runs eagerly, and the slot keeps the reason.
        """
        slot, step = self._slot, captured.step
        try:
            self._warm_up(step, captured.chunk, segment)
            if slot.captures:
                step.capture(slot.stream, slot.memory_pool)
        except CaptureError as error:
            slot.stop_capturing(str(error))
            step = self._step(self._local, captured.chunk, segment)
            self._warm_up(step, captured.chunk, segment)
        return CapturedStep(step, captured.chunk)

    def _warm_up(self, step: GraphStep, chunk: Chunk, segment: Segment) -> None:
        """Run the step, then restore everything it changed."""
        slot, network = self._slot, self._slot.weights
        # First the kernel search (none for tail batches), then the slot's own memory is set up.
        passes = [slot.on_stream] if self._is_tail(segment) else [slot.on_share, slot.on_stream]
        weights, state, loss = network.read(), clone(self._state), slot.loss.clone()
        optimizer, device = self._optimizer, slot.workspace.device
        memory = {} if optimizer is None else optimizer.state() or self._memory
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                for queued in passes:
                    chunk.next.zero_()
                    with queued():
                        step.run_eagerly()
        finally:
            network.write(weights)
            fill(self._state, state)
            slot.loss.copy_(loss)
            if optimizer is not None:
                optimizer.restart(self._lr, self._annotated, memory)
            chunk.next.zero_()

    def _like(self, segment: Segment) -> Batch:
        """Return an uninitialised batch of the segment's shapes."""
        device, classes = self._slot.workspace.device, self._task.class_count

        def of_pool(size: int, pool: Pool) -> Batch:
            image = torch.empty((size, *self._task.image_shape), device=device)
            labels = torch.empty((size, classes), device=device)
            rows = torch.empty(size, dtype=torch.int64, device=device)
            return Batch((image,) * len(pool.views), labels, labels.bool(), rows)

        batches = [of_pool(size, pool) for size, pool in zip(segment.shape, self._pools)]
        drawn = None if segment.drawn is None else segment.drawn[0]
        return replace(batches[0], drawn=drawn, beside=tuple(batches[1:]))
