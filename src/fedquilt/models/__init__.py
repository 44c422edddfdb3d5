"""Backbones and heads: images to features and logits."""
