"""The engine and the simulated disk, broken on purpose, and whether the tests notice."""
