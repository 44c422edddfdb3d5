"""Scene-GCN's scenes: their centres, what clients tell of them, how they are mixed."""
