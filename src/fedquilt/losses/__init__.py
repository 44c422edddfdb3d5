"""Losses and their building blocks: pure functions of logits, labels and the annotation mask."""
