"""The parts that transform each token by itself: norms, positions, channel mixers, embedding and head."""
