"""Write a model as ONNX and compare it with torch by onnxruntime (extra ``onnx``).

``optimize=False``: the exporter's optimiser deletes small constants such as ``+ 1e-8``, which made
one head return NaN. ``Dim.DYNAMIC`` with an example batch of 2: a named dimension was fixed
silently, and an example batch of 1 is taken for a constant.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.runs.export.comparison import Forward, export_checked
from fedquilt.runs.export.deployable import INPUT, Exported

OPSET = 20
EXAMPLE_BATCH = 2


def export_onnx(exported: Exported, path: Path) -> float:
    """Write the file; return the largest difference to torch."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"ONNX export needs the package {error.name}: pip install 'fedquilt[onnx]'"
        ) from None
    return export_checked(exported, path, "onnx", lambda partial: _write(exported, partial))


def _write(exported: Exported, path: Path) -> Forward:
    import onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about its own parts
        # Not without gradients: transformer layers would take a path that ONNX has no name for.
        program = torch.onnx.export(
            exported.module,
            (exported.example(EXAMPLE_BATCH),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            input_names=[INPUT],
            output_names=list(exported.module.outputs),
            opset_version=OPSET,
            optimize=False,
            verbose=False,
        )
    if program is None:
        raise UserError("the exporter returned nothing")
    program.model.metadata_props.update(exported.facts)
    program.save(str(path), external_data=False)
    onnx.checker.check_model(str(path))
    return runtime(path)


def runtime(path: Path) -> Forward:
    """Return a function that runs the file by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; not what it could not simplify
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def forward(images: Tensor) -> list[Tensor]:
        return [torch.from_numpy(each) for each in session.run(None, {INPUT: images.numpy()})]

    return forward
