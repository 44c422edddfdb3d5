"""Benchmarks: run by hand or by make; results are CSV files that name their hardware.

README.md lists the question, command and result file of each.
"""
