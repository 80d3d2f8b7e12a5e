"""The kinds of explanation, one a file; `explained.EXPLANATIONS` is their table."""
