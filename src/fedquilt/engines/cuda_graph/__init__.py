"""Many clients at once on one GPU: training steps are captured as CUDA graphs and replayed."""
