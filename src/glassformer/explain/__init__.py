"""Explanations: figures as data. Only the views draw."""
