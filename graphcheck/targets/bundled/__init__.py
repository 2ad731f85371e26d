"""The bundled engine as a target: alone in importing the engine, and in mapping its errors and events."""
