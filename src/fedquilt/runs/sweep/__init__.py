"""Sweeps: methods tuned with an equal budget on validation images, then compared."""
