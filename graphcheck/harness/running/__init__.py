"""Running attempts: supervision, devices, interrupts, ablations."""
