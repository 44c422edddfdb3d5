"""What benchmarks share: result files, and runs that can be interrupted."""
