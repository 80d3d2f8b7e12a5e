"""Yardsticks: what a trained model is measured against."""
