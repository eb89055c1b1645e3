"""The command line: commands, progress, tables. It decides nothing that a library could not."""
