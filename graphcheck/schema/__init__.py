"""The types that cross a boundary between layers. Imports nothing but the standard library and pydantic."""
