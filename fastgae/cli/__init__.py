"""The command line: one file per command. What a command needs beyond NumPy is imported when it runs."""
