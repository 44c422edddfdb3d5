"""Trees of tensors, updates and totals, settings, seeds and files; nothing about learning."""
