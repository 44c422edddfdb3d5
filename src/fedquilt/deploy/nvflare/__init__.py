"""The same rounds across hospitals, carried by NVIDIA FLARE: the only folder that imports it."""
