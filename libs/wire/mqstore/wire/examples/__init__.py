"""Examples of requests and replies, for the API pages; tests send them."""
