"""The client for asyncio. `tools/make_sync.py` makes `_sync` of it."""
