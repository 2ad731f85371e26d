"""From files and options to the attempts that will run."""
