"""Owns the models that come with graphcheck and the scripts that make them. Imports nothing else of graphcheck."""
