"""IndexFile: message keys, how the files are built, published and kept."""
