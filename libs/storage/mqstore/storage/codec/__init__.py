"""Encodes and decodes records, properties, hosts, ids and names; opens no files."""
