"""Published drafters that need no heads, to compare with, a method a file; `baseline.py` drives them all."""
