"""Our own files in ``store/mqstore/``, and the locks of the one writer."""
