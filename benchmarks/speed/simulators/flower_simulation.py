"""The federation in Flower's simulation: a ClientApp in ray actors and its FedAvg strategy."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from functools import cache

import psutil
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.speed.simulators.simulated_federation import (
    BATCH,
    LEARNING_RATE,
    Federation,
    RoundLog,
    local_loss,
    make_federation,
    shuffled,
)
from fedquilt.models.network import Network

OBJECT_STORE = 200_000_000  # bytes; ray would reserve a third of the machine's memory

client_app = ClientApp()


@cache
def local_federation(setting: str) -> tuple[Federation, Network]:
    """Build an actor's images and network once: only weights are sent."""
    torch.set_num_threads(1)
    federation = make_federation(setting)
    return federation, federation.task.build_network().train()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    federation, network = local_federation(config["setting"])
    task = federation.task
    data = federation.clients[task.clients[context.node_config["partition-id"]]]
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    for rows in shuffled(task, data, config["server-round"] - 1).split(BATCH):
        loss = local_loss(network, data.pixels(rows), data.labels[rows], data.known[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sent = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": len(data)}),
    }
    return Message(RecordDict(sent), reply_to=message)


def run(setting: str, rounds: int, actors: int) -> RoundLog:
    """Run rounds with actors of one CPU each; end all processes and remove all files."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    log = RoundLog(cpu_clock=cpu_seconds)
    federation = make_federation(setting)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001 (Flower's signature)
        def after_round(number: int, arrays: ArrayRecord) -> None:
            if number:  # Flower also calls it before the first
                log.end_round(arrays.to_torch_state_dict())

        # The server starts before all clients are registered: it must wait for every one.
        everyone = len(federation.clients)
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=everyone, min_available_nodes=everyone
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(federation.task.build_network().state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"setting": setting}),
            evaluate_fn=after_round,
        )

    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        os.environ["FLWR_HOME"] = folder
        ray = {"num_cpus": actors, "_temp_dir": folder, "object_store_memory": OBJECT_STORE}
        run_simulation(
            server_app,
            client_app,
            num_supernodes=len(federation.clients),
            backend_config={
                "init_args": ray | {"log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        end_processes()
    return log


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all processes that ray started."""
    total = time.process_time()
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def end_processes() -> None:
    """Wait for ray's processes; kill those that would disturb the next turn."""
    children = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=10)
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=10)
