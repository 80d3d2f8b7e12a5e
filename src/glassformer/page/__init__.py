"""A run as the page has it: its document, and one file or one cell of a notebook that holds all of it."""
