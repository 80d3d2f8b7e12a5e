"""What is drawn in the terminal; everything shown here was computed elsewhere."""
