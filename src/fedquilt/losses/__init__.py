"""Pure functions of logits, labels and the annotation mask."""
