"""How far the CUDA graph engine on a GPU is from the reference on a CPU, for every method.

    python -m benchmarks.engine_agreement

Three rounds of three clients by SGD in whole float32 with deterministic kernels: the largest gap
between weights, beside how far training moved them. Where the gap is above 1e-5, the reference is
also compared with itself, begun at weights that differ by one part in ten million: batch norm over
a handful of pixels can blow that up by itself. Networks with dropout draw other numbers on a GPU
and are trained without it here.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.recording import write_results
from fedquilt.core.tree import Tree, leaves
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.models.network import read_weights
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method

STATED = 1e-5  # a gap up to this is taken for rounding
SHIFTS = 5  # of the reference's first weights


def trained(
    federation: Federation, method: Method, engine: SequentialEngine, shift: int | None = None
) -> State:
    server = start_server(method, federation.task, engine)
    if shift is not None:
        random = torch.Generator().manual_seed(shift)
        server["weights"] = {
            name: value * (1 + 1e-7 * torch.randn(value.shape, generator=random))
            for name, value in server["weights"].items()
        }
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def gap(first: Tree, second: Tree) -> float:
    other = dict(leaves(second))
    gaps = [(leaf.double() - other[path].double()).abs().max() for path, leaf in leaves(first)]
    return float(torch.stack(gaps).max())


def by_descent(method: Method) -> Method:
    """With SGD, whose steps do not blow up the last bit of a gradient near 0, as Adam's do."""
    training = replace(method.training, optimizer="sgd", momentum=0.5, decay="coupled")
    return replace(method, training=training)


def comparable(name: str) -> Method:
    """By descent and without dropout, which draws other numbers on a GPU."""
    settings = {"dropout": 0.0} if name in ("fedlgt", "fedc-tran") else {}
    return by_descent(make_method(name, **settings))


def compared(name: str, backbone: str) -> dict[str, object]:
    method = comparable(name)
    federation = make_federation(backbone=backbone).fitted(method)
    reference = trained(federation, method, federation.engine())
    engine = CudaGraphEngine(federation.task, federation.clients, device="cuda", exact=True)
    recorded = trained(federation, method, engine)
    found = gap(reference["weights"], recorded["weights"])
    shifted = [
        trained(federation, method, federation.engine(), shift)["weights"]
        for shift in range(SHIFTS if found > STATED else 0)
    ]
    own = max((gap(reference["weights"], weights) for weights in shifted), default=None)
    first = read_weights(federation.task.build_network())
    before = {name: first[name] for name in reference["weights"]}
    return {
        "method": name,
        "backbone": backbone,
        "largest_gap": f"{found:.2e}",
        "reference_shifted_by_1e-7": "" if own is None else f"{own:.2e}",
        "largest_move": f"{gap(reference['weights'], before):.2e}",
        "unrecordable": engine.unrecordable or "",
    }


def main() -> None:
    rows = []
    for name in METHOD_NAMES:
        for backbone in ("small-cnn", "small-resnet"):
            rows.append(compared(name, backbone))
            print(rows[-1], flush=True)
    write_results("engine_agreement", rows, device="cuda")


if __name__ == "__main__":
    main()
