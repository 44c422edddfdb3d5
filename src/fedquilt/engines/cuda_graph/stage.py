"""One stage of a client's round in a slot: its batches by the chunk, its step from a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fedquilt.core.tree import clone
from fedquilt.data.batches import Batch, Pool, row_batches
from fedquilt.engines.cuda_graph.batch_chunk import (
    Chunk,
    Segment,
    bytes_of_a_chunk,
    load_chunk,
    segments,
    steps_in_a_chunk,
)
from fedquilt.engines.cuda_graph.device_memory import Signature, fill, signature
from fedquilt.engines.cuda_graph.graph_step import (
    GraphStep,
    StepLocal,
    Unrecordable,
    kernels_by_rule,
)
from fedquilt.engines.cuda_graph.slot import Recording, Slot
from fedquilt.training.client_step import (
    pool_generator,
    stage_optimizer,
    step_count,
    take_look,
    take_step,
    trained_parameters,
)
from fedquilt.training.local_optimizer import LocalOptimizer
from fedquilt.training.method import Local, Method, Stage, State
from fedquilt.training.task import Task


class CapturedStage:
    """Draws, hooks and their order are those of ``client.run_client``."""

    def __init__(self, slot: Slot, method: Method, task: Task, local: Local, stage: Stage) -> None:
        self._slot, self._method, self._task = slot, method, task
        self._local, self._stage = local, stage
        self._network = slot.workspace.training
        self._pools = method.pools(local)
        self.step_count = step_count(method, stage, self._pools[0], len(local.data))
        most_bytes = bytes_of_a_chunk(slot.workspace.device)
        self._most_steps = steps_in_a_chunk(self._pools, task.image_shape, most_bytes)
        self._lr = method.training.lr_at(local.round_index, task.round_count)
        self._annotated = local.data.known.any(0)

    def begin(self, memory: State, received: Signature) -> None:
        """Put the client's numbers into the slot's places."""
        self._memory, self._received = memory, received
        held = self._slot.hold(f"state in {self._stage.name}", self._local.state)
        self._places, self._kept = held.tree, held.signature
        self._optimizer = self._fresh_optimizer() if self._stage.trains else None
        # Here, on the slot's stream: pools may rest on numbers that are still being computed there.
        # All on the device now: a copy between two chunks would wait for the steps before it.
        device = self._slot.workspace.device
        self._plan = [segment.to(device) for segment in self._segments()]

    def steps(self) -> Iterator[None]:
        """Play the stage; after every step somebody else may have a turn."""
        slot, device = self._slot, self._slot.workspace.device
        viewing, data = self._task.viewing, self._local.data
        generators = [self._augmentation(place) for place in range(len(self._pools))]
        for segment in self._plan:
            with slot.at_work():
                recording, is_new = self._recording(segment)
                load_chunk(recording.chunk, segment, data, self._pools, viewing, generators, device)
                if is_new:
                    recording = self._made_ready(recording, segment)
            for _ in range(segment.steps):
                with slot.at_work():
                    recording.player.play()
                yield

    def end(self) -> tuple[State, State]:
        """The client's state and the optimiser's memory."""
        memory: State = {}
        if self._optimizer is not None and self._method.training.keep_optimizer:
            memory = dict(self._optimizer.state())
        return clone(self._places), memory

    def _segments(self) -> Iterator[Segment]:
        orders = [
            row_batches(
                pool,
                len(self._local.data),
                self.step_count,
                pool_generator(self._task, self._local, "order", place),
                self._local.data.indices.device,
            )
            for place, pool in enumerate(self._pools)
        ]
        rows = list(zip(*orders))
        classes, generator = self._task.class_count, self._local.generator
        drawn = [self._method.sample_noise(len(each[0]), classes, generator) for each in rows]
        return segments(rows, drawn, self._most_steps)

    def _augmentation(self, place: int) -> torch.Generator:
        """The reference's generator, or one of the device with the same seed, which is faster."""
        reference = pool_generator(self._task, self._local, "augmentation", place)
        if not self._slot.draws_on_device:
            return reference
        return torch.Generator(self._slot.workspace.device).manual_seed(reference.initial_seed())

    def _fresh_optimizer(self) -> LocalOptimizer:
        """The slot's optimiser of this stage, as if made anew."""
        known = self._slot.optimizers
        if self._stage in known:
            known[self._stage].restart(self._lr, self._annotated, self._memory)
        else:
            parameters = trained_parameters(self._network, self._stage)
            known[self._stage] = stage_optimizer(
                self._method, self._task, self._local, parameters, recordable=True
            )
        return known[self._stage]

    def _recording(self, segment: Segment) -> tuple[Recording, bool]:
        """The recording for steps of this kind, and whether it is yet to be made ready."""
        slot, local = self._slot, self._local
        drawn = None if segment.drawn is None else tuple(segment.drawn.shape[1:])
        # There may be a rest of every length, so each gets no more room than it needs.
        room = segment.steps if self._is_rest(segment) else self._most_steps
        kind = (segment.shape, room, tuple(pool.views for pool in self._pools), drawn)
        key = (self._stage, kind, self._kept, self._received)
        if key in slot.recordings:
            return slot.recordings[key], False
        device, is_last = slot.workspace.device, slot.channels_last
        chunk = Chunk(self._like(segment), room, device, channels_last=is_last)
        if slot.unrecordable is not None:  # its step sees this round's client: good for now only
            return Recording(self._player(local, chunk, segment), chunk), True
        slot.recordings[key] = Recording(self._player(StepLocal.of(local), chunk, segment), chunk)
        return slot.recordings[key], True

    def _is_rest(self, segment: Segment) -> bool:
        """Whether it is the shorter batch that an epoch ends with."""
        return segment.shape != tuple(pool.batch_size for pool in self._pools)

    def _player(self, local: Local, chunk: Chunk, segment: Segment) -> GraphStep:
        method, places, optimizer = self._method, self._places, self._optimizer
        loss_sum, parameters = self._slot.loss, trained_parameters(self._network, self._stage)
        live = {name: parameter.detach() for name, parameter in parameters.items()}

        def step() -> None:
            local.state = places
            if optimizer is None:
                take_look(method, local, chunk.batch())
            else:
                loss_sum.add_(take_step(method, local, chunk.batch(), parameters, live, optimizer))
            if signature(local.state) != signature(places):
                raise Unrecordable("the client's state changes its shape from step to step")
            fill(places, local.state)
            chunk.next.add_(1)

        # Clients' rests are of all lengths, each played once an epoch: not worth a search.
        return GraphStep(kernels_by_rule()(step) if self._is_rest(segment) else step)

    def _made_ready(self, recording: Recording, segment: Segment) -> Recording:
        """Take a new step on trial, undo it, and record it.

        A step that cannot be recorded is played all the same, and the slot knows why.
        """
        slot, player = self._slot, recording.player
        try:
            self._on_trial(player, recording.chunk, segment)
            if slot.records:
                player.record(slot.stream, slot.memory)
        except Unrecordable as error:
            slot.give_up_recording(str(error))
            player = self._player(self._local, recording.chunk, segment)
            self._on_trial(player, recording.chunk, segment)
        return Recording(player, recording.chunk)

    def _on_trial(self, player: GraphStep, chunk: Chunk, segment: Segment) -> None:
        slot, network = self._slot, self._slot.workspace.trained
        # Libraries choose their kernels (for a rest by rule), then set up the slot's memory.
        ways = [slot.at_work] if self._is_rest(segment) else [slot.choosing_kernels, slot.at_work]
        weights, state, loss = network.read(), clone(self._places), slot.loss.clone()
        optimizer, device = self._optimizer, slot.workspace.device
        memory = {} if optimizer is None else optimizer.state() or self._memory
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                for way in ways:
                    chunk.next.zero_()
                    with way():
                        player.take()
        finally:
            network.write(weights)
            fill(self._places, state)
            slot.loss.copy_(loss)
            if optimizer is not None:
                optimizer.restart(self._lr, self._annotated, memory)
            chunk.next.zero_()

    def _like(self, segment: Segment) -> Batch:
        """A batch of the segment's shapes."""
        device, classes = self._slot.workspace.device, self._task.class_count

        def of_pool(size: int, pool: Pool) -> Batch:
            image = torch.empty((size, *self._task.image_shape), device=device)
            labels = torch.empty((size, classes), device=device)
            rows = torch.empty(size, dtype=torch.int64, device=device)
            return Batch((image,) * len(pool.views), labels, labels.bool(), rows)

        batches = [of_pool(size, pool) for size, pool in zip(segment.shape, self._pools)]
        drawn = None if segment.drawn is None else segment.drawn[0]
        return replace(batches[0], drawn=drawn, beside=tuple(batches[1:]))
