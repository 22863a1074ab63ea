"""Plug-ins for the programs that others decode with. See README.md."""
