"""What this machine is and has, asked of short-lived child processes."""
