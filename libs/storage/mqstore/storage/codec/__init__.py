"""Records, properties, hosts, ids and names: between Python values and bytes; no files."""
