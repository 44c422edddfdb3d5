"""The NVIDIA FLARE adapter; no other folder imports FLARE."""
