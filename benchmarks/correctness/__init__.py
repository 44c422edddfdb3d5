"""Do engines agree, and does a killed run resume to the same bits?

These benchmarks measure with the helpers of the tests, which are imported as ``support``. pytest
finds them by its own setting; ``python -m`` run from the repository needs their folder here.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))
