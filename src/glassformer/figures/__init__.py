"""Figures as SVG files: they draw what explain computed and compute nothing themselves."""
