"""Our own files in ``store/mqstore/``, and who may write."""
