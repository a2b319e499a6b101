"""The command line: one file per command. A command imports what it needs beyond NumPy when it runs."""
