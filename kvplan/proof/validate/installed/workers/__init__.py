"""One file an engine: ``hello()`` says what is installed, ``run(asked, speaker)`` measures it.

They run in the interpreter that has the engine, and import the engine itself inside functions.
"""
