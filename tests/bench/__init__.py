"""Benchmarks: `make bench`, ours and real RocketMQ in turn in one run (docs/benchmarks.md)."""
