"""Engines as the harness reaches them."""
