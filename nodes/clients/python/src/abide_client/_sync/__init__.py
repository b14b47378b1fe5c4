"""The client for programs without asyncio, made of `_async` by `tools/make_sync.py`."""
