"""Benchmarks: Pombo's webhook service beside other servers, in the same run, since machines are shared and noisy."""
