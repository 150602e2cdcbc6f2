"""The console: pages for a browser, and the way from them to store-writer."""
