"""Which messages a subscription wants: SQL92 expressions over properties, and the bloom filter
that says so beforehand."""
