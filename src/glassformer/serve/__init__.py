"""The explorer: a page in the browser, and the server that gives it the numbers of a run."""
