"""A buffer behind a URL: the same reader and writer as on a directory, over HTTPS. Synchronous; no aiohttp."""
