"""How far the CUDA graph engine on a GPU is from the reference on a CPU, for every method.

    python -m benchmarks.correctness.engine_agreement

Three rounds of three clients by SGD in full float32 with deterministic kernels. The result is the
largest gap between weights, beside the largest change that training made. Where the gap is above
1e-5, the reference is also compared with a reference whose first weights differ by one part in ten
million: batch norm over a few pixels alone can amplify such a difference. Dropout draws other
numbers on a GPU, so networks are trained without it.
"""

from __future__ import annotations

from support.engine_agreement import TOLERANCE, comparable_method, largest_gap, train
from support.tiny_federation import METHOD_NAMES, make_federation

from benchmarks.harness.result_csv import Row, write_results
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.models.network import read_weights

SHIFTS = 5  # random changes to the reference's first weights


def compare(name: str, backbone: str) -> Row:
    method = comparable_method(name)
    federation = make_federation(backbone=backbone).fitted(method)
    reference = train(federation, method, federation.engine())["weights"]
    engine = CudaGraphEngine(federation.task, federation.clients, device="cuda", exact=True)
    found = largest_gap(reference, train(federation, method, engine)["weights"])
    shifted = [
        train(federation, method, federation.engine(), shift)["weights"]
        for shift in range(SHIFTS if found > TOLERANCE else 0)
    ]
    own = max((largest_gap(reference, weights) for weights in shifted), default=None)
    first = read_weights(federation.task.build_network())
    before = {name: first[name] for name in reference}
    return {
        "method": name,
        "backbone": backbone,
        "largest_gap": f"{found:.2e}",
        "reference_shifted_by_1e-7": "" if own is None else f"{own:.2e}",
        "largest_move": f"{largest_gap(reference, before):.2e}",
        "capture_failure": engine.capture_failure or "",
    }


def main() -> None:
    rows = []
    for name in METHOD_NAMES:
        for backbone in ("small-cnn", "small-resnet"):
            rows.append(compare(name, backbone))
            print(rows[-1], flush=True)
    write_results("correctness/engine_agreement", rows, device="cuda")


if __name__ == "__main__":
    main()
