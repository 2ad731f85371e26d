"""Goldens: made by the reference, reviewed, stored, checked, calibrated."""
