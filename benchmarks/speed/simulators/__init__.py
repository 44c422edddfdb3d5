"""fedquilt beside other simulators of federated learning, on the same work."""
