"""Lossy decoding by early exits (CALM), calibrated to bound how much texts differ from the model's own."""
