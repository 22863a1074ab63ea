"""Lossy decoding by early exits: CALM, calibrated so that texts seldom differ much from the model's own."""
