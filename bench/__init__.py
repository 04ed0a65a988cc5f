"""Benchmarks: ratios against a baseline in the same run, since machines are shared and noisy."""
