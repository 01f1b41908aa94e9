"""Benchmarks of watching: patterns, stored searches, sketches, each beside what people would use instead."""
