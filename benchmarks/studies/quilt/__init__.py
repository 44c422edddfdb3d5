"""QUILT against its relatives and the published methods: data, rows, runs and tables."""
