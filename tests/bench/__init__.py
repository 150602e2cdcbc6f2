"""Benchmarks: `make bench`, ours and a peer interleaved in one run, reported as a ratio."""
