"""Where tasks come from: generated packs, the user's files, and the check of their soundness."""
