"""What a secure round costs: seconds at a site and at the server, bytes and memory.

All sites are in this process, one after another; a third of them gets lost after the shares were
exchanged, which is the dearest moment. Vectors have as many numbers as a ResNet-18.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.harness.result_csv import write_results
from fedquilt.core.fixed_point import PartScale, quantised
from fedquilt.core.payload import Mean
from fedquilt.deploy.secure.masks import Attempt
from fedquilt.deploy.secure.server_half import SecureSum
from fedquilt.deploy.secure.site_half import MemoryRecord, SecureSite
from fedquilt.engines.host_memory import peak_growth

RESNET_18 = 11_181_642  # numbers
STUDY = "0" * 64
Result = TypeVar("Result")


class Clock:
    """Adds up the seconds of what it is given to do, waited and on the processor.

    The latter say more on a machine that others use, too.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    def __call__(self, work: Callable[[], Result]) -> Result:
        began, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - cpu
        return result


def measure(count: int, lost: int, length: int) -> dict[str, object]:
    names = tuple(f"site-{number:02}" for number in range(count))
    signers = {name: Ed25519PrivateKey.generate() for name in names}
    public = {name: key.public_key() for name, key in signers.items()}
    sites = {name: SecureSite(name, signers[name], public, STUDY, MemoryRecord()) for name in names}
    attempt = Attempt(STUDY, "train 0", 0, names)
    at_site, at_server, small = {name: Clock() for name in names}, Clock(), 0
    change = Mean(torch.randn(length, generator=torch.Generator().manual_seed(0)) / 100, 1_000.0)
    scale = PartScale.of(change, 16.0, [20_000.0] * count)
    plain = quantised("site", "body", change, scale)["total"]
    assert isinstance(plain, torch.Tensor)
    with peak_growth() as growth:
        server = SecureSum(attempt, length)
    total_bytes = growth.bytes or 0
    for name in names:
        server.add_keys(name, at_site[name](partial(sites[name].keys, attempt)))
    for name in names:
        texts = at_site[name](partial(sites[name].shares, attempt, server.keys))
        server.add_shares(name, texts)
        small += 128 + sum(map(len, texts.values()))
    survivors = names[lost:]
    for name in survivors:

        def masked(name: str = name) -> torch.Tensor:
            vector = quantised(name, "body", change, scale)["total"]
            assert isinstance(vector, torch.Tensor)
            return sites[name].mask(attempt, vector, server.inbox(name))

        vector = at_site[name](masked)
        at_server(partial(server.add_vector, name, vector))
    for name in survivors:
        shares = at_site[name](partial(sites[name].unmask, attempt, server.survivors))
        server.add_unmasking(name, shares)
        small += sum(map(len, shares.values()))
    with peak_growth() as growth:
        found = at_server(server.unmasked)
    assert torch.equal(found, plain * len(survivors))
    slowest = max(at_site[name].seconds for name in survivors)
    return {
        "sites": count,
        "lost": lost,
        "numbers": length,
        "site_cpu_seconds": round(max(at_site[name].cpu for name in survivors), 2),
        "site_seconds": round(slowest, 2),
        "server_cpu_seconds": round(at_server.cpu, 2),
        "server_seconds": round(at_server.seconds, 2),
        "vector_bytes_up": 8 * length,
        "small_bytes_up_per_site": small // count,
        # The total, the vector that just arrived, and what unmasking takes on top.
        "server_vectors": round((total_bytes + 8 * length + (growth.bytes or 0)) / (8 * length), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numbers", type=int, default=RESNET_18)
    length = parser.parse_args().numbers
    torch.set_num_threads(1)
    rows = []
    for count, lost in ((3, 0), (10, 0), (10, 3), (30, 0), (30, 10)):
        rows.append(measure(count, lost, length))
        print(rows[-1], flush=True)
    write_results("speed/secure_sum", rows)


if __name__ == "__main__":
    main()
