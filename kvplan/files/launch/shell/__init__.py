"""The shell's grammar: the commands that a script comes to, read and never run."""
