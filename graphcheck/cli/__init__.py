"""The command line: parses, calls one library function, prints, exits. Loads no library before a command needs it."""
