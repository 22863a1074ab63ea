"""Plug-ins for other decoding engines. See README.md."""
