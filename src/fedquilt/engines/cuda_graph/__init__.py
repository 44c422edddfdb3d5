"""Many clients at once on one device: steps are recorded once and played again."""
