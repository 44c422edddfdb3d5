"""``python -m fedquilt``, which torchrun needs: ``torchrun -m fedquilt run ...``."""

from fedquilt.cli.main import main

if __name__ == "__main__":
    main()
