"""The page in a notebook: a widget whose numbers come from the kernel."""
