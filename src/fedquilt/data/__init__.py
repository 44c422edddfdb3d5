"""Data sets with an annotation mask, their split over clients, and batches."""
