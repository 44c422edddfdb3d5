"""Measurements: run by hand or by make, recorded as CSV with the hardware they were made on."""
