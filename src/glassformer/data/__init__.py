"""What models are trained on: text and its tokens, pairs, labels, images and synthetic tasks."""
