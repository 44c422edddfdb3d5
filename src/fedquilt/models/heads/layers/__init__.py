"""Layers of heads: attention, label graphs, class branches and fixed class directions."""
