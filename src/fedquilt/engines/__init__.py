"""Where clients run on this machine: one by one, in threads, or as CUDA graphs."""
